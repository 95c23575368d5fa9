// Early return for absl::Status and absl::StatusOr.
//
// Layer: common. May include nothing else of this repository.

#ifndef KRONSERVE_COMMON_STATUS_MACROS_H_
#define KRONSERVE_COMMON_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define KRONSERVE_RETURN_IF_ERROR(expression)            \
  do {                                                   \
    ::absl::Status kronserve_status = (expression);      \
    if (!kronserve_status.ok()) return kronserve_status; \
  } while (false)

#define KRONSERVE_STATUS_CONCAT_INNER(a, b) a##b
#define KRONSERVE_STATUS_CONCAT(a, b) KRONSERVE_STATUS_CONCAT_INNER(a, b)

// KRONSERVE_ASSIGN_OR_RETURN(auto x, F()): x is the value, or F's error
// returns.
#define KRONSERVE_ASSIGN_OR_RETURN(declaration, expression)              \
  KRONSERVE_ASSIGN_OR_RETURN_IMPL(                                       \
      KRONSERVE_STATUS_CONCAT(kronserve_result_, __LINE__), declaration, \
      expression)
#define KRONSERVE_ASSIGN_OR_RETURN_IMPL(result, declaration, expression) \
  auto result = (expression);                                            \
  if (!result.ok()) return std::move(result).status();                   \
  declaration = *std::move(result)

#endif  // KRONSERVE_COMMON_STATUS_MACROS_H_
