#include "common/status_macros.h"

#include <gtest/gtest.h>

#include <memory>

#include "common/testing/status_matchers.h"

namespace kronserve {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;

absl::StatusOr<std::unique_ptr<int>> Make(int value) {
  if (value < 0) return absl::InvalidArgumentError("below zero");
  return std::make_unique<int>(value);
}

absl::Status Sum(int a, int b, int* sum) {
  KRONSERVE_ASSIGN_OR_RETURN(const std::unique_ptr<int> first, Make(a));
  KRONSERVE_ASSIGN_OR_RETURN(const std::unique_ptr<int> second, Make(b));
  *sum = *first + *second;
  return absl::OkStatus();
}

absl::Status Twice(const absl::Status& status, int* reached) {
  KRONSERVE_RETURN_IF_ERROR(status);
  ++*reached;
  KRONSERVE_RETURN_IF_ERROR(status);
  ++*reached;
  return absl::OkStatus();
}

TEST(StatusMacros, AssignMovesTheValueOrReturnsTheError) {
  int sum = 0;
  EXPECT_THAT(Sum(1, 2, &sum), IsOk());
  EXPECT_EQ(sum, 3);
  EXPECT_THAT(Sum(4, -1, &sum),
              StatusIs(absl::StatusCode::kInvalidArgument, "below zero"));
  EXPECT_EQ(sum, 3);
}

TEST(StatusMacros, ReturnIfErrorGoesOnWhenOk) {
  int reached = 0;
  EXPECT_THAT(Twice(absl::OkStatus(), &reached), IsOk());
  EXPECT_EQ(reached, 2);
  EXPECT_THAT(Twice(absl::AbortedError("old"), &reached),
              StatusIs(absl::StatusCode::kAborted, "old"));
  EXPECT_EQ(reached, 2);
}

}  // namespace
}  // namespace kronserve
