// The ladder, rung by rung: with injected faults and with real matrices.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"
#include "curvature/preconditioner.h"
#include "curvature/testing/faulty_solvers.h"
#include "curvature/testing/golden.h"
#include "curvature/testing/layer_tools.h"
#include "linalg/matrix_view.h"

namespace kronserve::curvature {
namespace {

using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using testing::ExpectClose;
using testing::Fault;
using ::testing::HasSubstr;
using testing::MakeCholeskyFaulty;
using testing::MakeEigenFaulty;
using testing::MakeMatrix;
using testing::Preconditioned;

constexpr RefreshOptions kInverse{Method::kInverse, DampingForm::kFactored,
                                  0.01};
constexpr RefreshOptions kEigen{Method::kEigen, DampingForm::kExact, 0.01};

class RefreshLadderTest : public ::testing::Test {
 protected:
  using Tools = testing::LayerTools<float>;

  // A well conditioned layer [2, 2].
  absl::StatusOr<Preconditioned<float>> Run(Tools& tools,
                                            const RefreshOptions& options) {
    return tools.Run({2, 1, 3}, {1, 0.25, 0.5},
                     MakeMatrix<float>(2, 2, {1, 2, 3, 4}), options);
  }

  // V without any fault.
  std::vector<float> Expected(const RefreshOptions& options) {
    Tools sound(linalg::Device::kCpu);
    return Run(sound, options)->v.values;
  }

  static RefreshOptions WithDamping(double damping) {
    RefreshOptions options = kInverse;
    options.damping = damping;
    return options;
  }

  Tools tools_{linalg::Device::kCpu};
};

TEST_F(RefreshLadderTest, DirectWhenNothingFails) {
  for (const RefreshOptions& options : {kInverse, kEigen}) {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto result, Run(tools_, options));
    EXPECT_EQ(result.factorization.rung, Rung::kDirect);
    EXPECT_EQ(result.factorization.damping, 0.01);
    EXPECT_EQ(result.factorization.method, options.method);
    EXPECT_EQ(result.factorization.form, options.form);
  }
}

TEST_F(RefreshLadderTest, DoubleWhenWorkingPrecisionFails) {
  for (const Fault fault : {Fault::kError, Fault::kNan, Fault::kWrong}) {
    Tools tools(linalg::Device::kCpu);
    MakeCholeskyFaulty(fault, 1, &tools.working);
    KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto result, Run(tools, kInverse));
    EXPECT_EQ(result.factorization.rung, Rung::kDouble);
    EXPECT_EQ(result.factorization.damping, 0.01);
    ExpectClose(result.v.values, Expected(kInverse), 1e-5, "V");
  }
}

TEST_F(RefreshLadderTest, EigenWhenDoubleFailsToo) {
  for (const Fault fault : {Fault::kError, Fault::kNan, Fault::kWrong}) {
    Tools tools(linalg::Device::kCpu);
    MakeCholeskyFaulty(Fault::kError, 1, &tools.working);
    MakeCholeskyFaulty(fault, 1, &tools.wide);
    KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto result, Run(tools, kInverse));
    EXPECT_EQ(result.factorization.rung, Rung::kEigen);
    EXPECT_EQ(result.factorization.method, Method::kInverse);
    EXPECT_EQ(result.factorization.damping, 0.01);
    ExpectClose(result.v.values, Expected(kInverse), 1e-5, "V");
  }
}

TEST_F(RefreshLadderTest, MoreDampingUpToAThousandTimes) {
  // Two calls fail before the first raise: those of the rungs before it.
  for (const auto& [failures, damping] :
       {std::pair{2, 0.1}, std::pair{3, 1.0}, std::pair{4, 10.0}}) {
    Tools tools(linalg::Device::kCpu);
    MakeCholeskyFaulty(Fault::kError, 1, &tools.working);
    MakeCholeskyFaulty(Fault::kError, failures, &tools.wide);
    KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto result, Run(tools, kInverse));
    EXPECT_EQ(result.factorization.rung, Rung::kMoreDamping);
    EXPECT_DOUBLE_EQ(result.factorization.damping, damping);
    EXPECT_DOUBLE_EQ(
        result.factorization.split.gamma_a * result.factorization.split.gamma_g,
        damping);
    ExpectClose(result.v.values, Expected(WithDamping(damping)), 1e-5, "V");
  }
}

TEST_F(RefreshLadderTest, TellsEveryRungWhenAllFail) {
  MakeCholeskyFaulty(Fault::kError, 1, &tools_.working);
  MakeCholeskyFaulty(Fault::kError, 5, &tools_.wide);
  EXPECT_THAT(
      Run(tools_, kInverse),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("working precision: factor A: injected"),
                     HasSubstr("double: factor A: injected"),
                     HasSubstr("eigen: factor A: injected"),
                     HasSubstr("damping 0.1: "), HasSubstr("damping 1: "),
                     HasSubstr("damping 10: "))));
}

TEST_F(RefreshLadderTest, MoreDampingWithoutAnEigensolver) {
  MakeCholeskyFaulty(Fault::kError, 1, &tools_.working);
  MakeCholeskyFaulty(Fault::kError, 1, &tools_.wide);
  MakeEigenFaulty(Fault::kError, 2, &tools_.wide);
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto result, Run(tools_, kInverse));
  EXPECT_EQ(result.factorization.rung, Rung::kMoreDamping);
  ExpectClose(result.v.values, Expected(WithDamping(0.1)), 1e-5, "V");
}

TEST_F(RefreshLadderTest, EigenMethodClimbsToDouble) {
  for (const Fault fault : {Fault::kError, Fault::kNan, Fault::kWrong}) {
    Tools tools(linalg::Device::kCpu);
    MakeEigenFaulty(fault, 1, &tools.working);
    KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto result, Run(tools, kEigen));
    EXPECT_EQ(result.factorization.rung, Rung::kDouble);
    ExpectClose(result.v.values, Expected(kEigen), 1e-5, "V");
  }
}

TEST_F(RefreshLadderTest, EigenMethodTellsBothRungs) {
  MakeEigenFaulty(Fault::kError, 1, &tools_.working);
  MakeEigenFaulty(Fault::kWrong, 1, &tools_.wide);
  EXPECT_THAT(Run(tools_, kEigen),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("working precision: factor A: injected"),
                             HasSubstr("double: factor A: the solver's result "
                                       "misses its matrix"))));
}

// A = diag(1, -10) is no Gram matrix. Its trace is negative, so pi = 1; with
// -10 set to 0 and both gammas 0.1: V = D / (1.1 (a + 0.1)).
TEST_F(RefreshLadderTest, NegativeEigenvaluesBecomeZero) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(
      const auto result,
      tools_.Run({1, 0, -10}, {1}, MakeMatrix<float>(1, 2, {1, 1}), kInverse));
  EXPECT_EQ(result.factorization.rung, Rung::kEigen);
  ExpectClose(result.v.values,
              std::vector<double>{1 / (1.1 * 1.1), 1 / (1.1 * 0.1)}, 1e-5, "V");
  KRONSERVE_ASSERT_OK_AND_ASSIGN(
      const auto eigen,
      tools_.Run({1, 0, -10}, {1}, MakeMatrix<float>(1, 2, {1, 1}), kEigen));
  EXPECT_EQ(eigen.factorization.rung, Rung::kDirect);
  ExpectClose(eigen.v.values, std::vector<double>{1 / 1.01, 1 / 0.01}, 1e-5,
              "V");
}

// 1e8 + 1e-4 is 1e8 in float: the second pivot vanishes there, not in double.
TEST_F(RefreshLadderTest, DoubleKeepsADampingThatFloatRoundsAway) {
  RefreshOptions options = kInverse;
  options.damping = 1e-8;
  // A = 1e8 [[1, 1], [1, 1]], G = [1e8]: pi = 1, gammas 1e-4.
  KRONSERVE_ASSERT_OK_AND_ASSIGN(
      const auto result, tools_.Run({1e8f, 1e8f, 1e8f}, {1e8f},
                                    MakeMatrix<float>(1, 2, {1, 1}), options));
  EXPECT_EQ(result.factorization.rung, Rung::kDouble);
  EXPECT_EQ(result.factorization.damping, 1e-8);
}

// Nothing can be multiplied by 10 here: the floor eps (tr A / 2) (tr G / 1).
TEST_F(RefreshLadderTest, ZeroDampingOfASingularFactorIsRaisedToAFloor) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(
      const auto result,
      tools_.Run({1, 0, 0}, {1}, MakeMatrix<float>(1, 2, {1, 1}),
                 WithDamping(0)));
  EXPECT_EQ(result.factorization.rung, Rung::kMoreDamping);
  EXPECT_DOUBLE_EQ(result.factorization.damping,
                   0.5 * std::numeric_limits<float>::epsilon());
  EXPECT_TRUE(std::isfinite(result.v(0, 1)));
}

TEST_F(RefreshLadderTest, ZeroFactorsWithoutDampingAreRefused) {
  EXPECT_THAT(
      tools_.Run({0}, {0}, MakeMatrix<float>(1, 1, {0}), WithDamping(0)),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("every rung of the refresh failed")));
}

TEST_F(RefreshLadderTest, NonFiniteAveragesAreRefusedAtOnce) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(tools_.Run({1, nan, infinity}, {1},
                         MakeMatrix<float>(1, 2, {1, 1}), kInverse),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("factor A holds 2 of 3 values")));
  EXPECT_THAT(tools_.Run({1}, {nan}, MakeMatrix<float>(1, 1, {1}), kEigen),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("factor G holds 1 of 1 values")));
}

TEST_F(RefreshLadderTest, RejectsBadArguments) {
  const auto refresh = [this](int64_t d_in, int64_t d_out,
                              const RefreshOptions& options) {
    return Refresh<float>(tools_.refresh(), {{1, 0, 1}, d_in}, {{1}, d_out},
                          options);
  };
  const auto is_invalid = [](const char* words) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(words));
  };
  RefreshOptions exact = kInverse;
  exact.form = DampingForm::kExact;
  EXPECT_THAT(refresh(2, 1, exact), is_invalid("not a Kronecker product"));
  EXPECT_THAT(refresh(2, 1, WithDamping(-1)), is_invalid("got -1"));
  EXPECT_THAT(refresh(2, 1, WithDamping(NAN)), is_invalid("got nan"));
  EXPECT_THAT(refresh(3, 1, kInverse),
              is_invalid("factor A has 3 elements, a packed triangle of side "
                         "3 is expected"));
  EXPECT_THAT(refresh(2, 2, kInverse), is_invalid("factor G has 1 elements"));
  EXPECT_THAT(refresh(0, 1, kInverse), is_invalid("factor A"));
  EXPECT_THAT(refresh(-2, 1, kInverse), is_invalid("factor A"));
  EXPECT_THAT(refresh(int64_t{1} << 40, 1, kInverse), is_invalid("factor A"));
}

}  // namespace
}  // namespace kronserve::curvature
