#include "linalg/cpu/lapack_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"

namespace kronserve::linalg::cpu {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::HasSubstr;

TEST(LapackStatusTest, ZeroIsOk) {
  EXPECT_THAT(CholeskyStatus(0, 3, 0), IsOk());
  EXPECT_THAT(EigenStatus(0, 3), IsOk());
}

TEST(LapackStatusTest, NegativeIsABugThatNamesTheArgument) {
  EXPECT_THAT(CholeskyStatus(-4, 3, 0),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("argument 4")));
  EXPECT_THAT(EigenStatus(-8, 3),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("argument 8")));
}

TEST(LapackStatusTest, PositiveIsAFailureOfTheNumbers) {
  EXPECT_THAT(CholeskyStatus(2, 3, 0.5),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("minor of order 2 of 3 failed at damping "
                                 "0.5")));
  EXPECT_THAT(EigenStatus(7, 3),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("did not converge (LAPACK syevd info 7)")));
}

TEST(LapackStatusTest, SizesBeyond32BitsAreRefused) {
  EXPECT_THAT(CheckLapackSizes({0, 2147483647}), IsOk());
  EXPECT_THAT(CheckLapackSizes({1, int64_t{2147483648}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("size 2147483648 is above 2147483647")));
  EXPECT_THAT(CheckEigenSide(32766), IsOk());
  EXPECT_THAT(CheckEigenSide(32767),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("side 32767: at most 32766")));
}

}  // namespace
}  // namespace kronserve::linalg::cpu
