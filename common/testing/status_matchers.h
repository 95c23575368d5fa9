// gMock matchers for absl::Status and absl::StatusOr.

#ifndef KRONSERVE_COMMON_TESTING_STATUS_MATCHERS_H_
#define KRONSERVE_COMMON_TESTING_STATUS_MATCHERS_H_

#include <gmock/gmock.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kronserve::testing {

inline const absl::Status& GetStatus(const absl::Status& status) {
  return status;
}
template <typename T>
const absl::Status& GetStatus(const absl::StatusOr<T>& result) {
  return result.status();
}

MATCHER(IsOk, negation ? "is not OK" : "is OK") {
  *result_listener << GetStatus(arg).ToString();
  return GetStatus(arg).ok();
}

MATCHER_P2(StatusIs, code, message,
           "has code " + absl::StatusCodeToString(code) + " and message " +
               ::testing::PrintToString(message)) {
  const absl::Status& status = GetStatus(arg);
  *result_listener << status.ToString();
  return status.code() == code &&
         ::testing::ExplainMatchResult(message, std::string(status.message()),
                                       result_listener);
}

}  // namespace kronserve::testing

#define KRONSERVE_ASSERT_OK_AND_ASSIGN(declaration, expression)        \
  KRONSERVE_ASSERT_OK_AND_ASSIGN_IMPL(                                 \
      KRONSERVE_TEST_CONCAT(kronserve_result_, __LINE__), declaration, \
      expression)
#define KRONSERVE_TEST_CONCAT_INNER(a, b) a##b
#define KRONSERVE_TEST_CONCAT(a, b) KRONSERVE_TEST_CONCAT_INNER(a, b)
#define KRONSERVE_ASSERT_OK_AND_ASSIGN_IMPL(result, declaration, expression) \
  auto result = (expression);                                                \
  ASSERT_TRUE(result.ok()) << result.status();                               \
  declaration = *std::move(result)

#endif  // KRONSERVE_COMMON_TESTING_STATUS_MATCHERS_H_
