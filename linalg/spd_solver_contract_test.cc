// What every SpdSolver backend must do.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"
#include "linalg/matrix_view.h"
#include "linalg/spd_solver.h"
#include "linalg/testing/backends.h"
#include "linalg/testing/random_matrix.h"

namespace kronserve::linalg {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename B>
class SpdSolverContractTest : public testing::BackendTest<B> {
 protected:
  using T = typename B::Element;

  absl::Status Factorize(const std::vector<T>& m, int64_t n, double damping) {
    lower_ = Matrix<T>(n, n);
    return this->tools_.spd->Factorize({m.data(), n, n}, damping,
                                       lower_.view());
  }
  SpdSolver<T>& solver() { return *this->tools_.spd; }

  // Expects `actual` within `eps` roundings of `expected`, both near 1 to 10.
  void ExpectNear(const std::vector<T>& actual,
                  const std::vector<double>& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(actual[i], expected[i], 100 * this->kEps) << "at " << i;
    }
  }

  Matrix<T> lower_;
};

TYPED_TEST_SUITE(SpdSolverContractTest, testing::Backends,
                 testing::BackendName);

// [[4, 2], [2, 3]] = L L^T with L = [[2, 0], [1, sqrt 2]]; determinant 8,
// inverse [[3, -2], [-2, 4]] / 8. The NaN shows that the upper triangle is not
// read.
template <typename T>
std::vector<T> TwoByTwo() {
  return {4, std::numeric_limits<T>::quiet_NaN(), 2, 3};
}

TYPED_TEST(SpdSolverContractTest, FactorizesTwoByTwoByHand) {
  ASSERT_THAT(this->Factorize(TwoByTwo<typename TypeParam::Element>(), 2, 0),
              IsOk());
  this->ExpectNear(this->lower_.values, {2, 0, 1, std::sqrt(2.0)});
}

TYPED_TEST(SpdSolverContractTest, SolvesFromTheLeftByHand) {
  using T = typename TypeParam::Element;
  ASSERT_THAT(this->Factorize(TwoByTwo<T>(), 2, 0), IsOk());
  std::vector<T> b = {8, 0, 16, 8};  // Columns (8, 16) and (0, 8).
  ASSERT_THAT(this->solver().SolveLeft(this->lower_.view(), {b.data(), 2, 2}),
              IsOk());
  this->ExpectNear(b, {-1, -2, 6, 4});
}

TYPED_TEST(SpdSolverContractTest, SolvesFromTheRightByHand) {
  using T = typename TypeParam::Element;
  ASSERT_THAT(this->Factorize(TwoByTwo<T>(), 2, 0), IsOk());
  std::vector<T> b = {8, 16, 0, 8, 8, 0};  // Three rows.
  ASSERT_THAT(this->solver().SolveRight(this->lower_.view(), {b.data(), 3, 2}),
              IsOk());
  this->ExpectNear(b, {-1, 6, -2, 4, 3, -2});
}

TYPED_TEST(SpdSolverContractTest, DampingMovesOnlyTheDiagonal) {
  ASSERT_THAT(this->Factorize({0, 0, 0, 0}, 2, 0.25), IsOk());
  this->ExpectNear(this->lower_.values, {0.5, 0, 0, 0.5});
}

TYPED_TEST(SpdSolverContractTest, ZeroesTheUpperTriangleAndKeepsTheInput) {
  using T = typename TypeParam::Element;
  const std::vector<T> m = {4, 7, 2, 3};
  this->lower_ = Matrix<T>(2, 2);
  std::fill(this->lower_.values.begin(), this->lower_.values.end(), this->kNan);
  ASSERT_THAT(
      this->solver().Factorize({m.data(), 2, 2}, 1, this->lower_.view()),
      IsOk());
  EXPECT_EQ(this->lower_.values[1], 0);
  EXPECT_THAT(m, ElementsAre(4, 7, 2, 3));
}

TYPED_TEST(SpdSolverContractTest, TakesOneByOne) {
  using T = typename TypeParam::Element;
  ASSERT_THAT(this->Factorize({7}, 1, 2), IsOk());
  std::vector<T> b = {18};
  ASSERT_THAT(this->solver().SolveLeft(this->lower_.view(), {b.data(), 1, 1}),
              IsOk());
  ASSERT_THAT(this->solver().SolveRight(this->lower_.view(), {b.data(), 1, 1}),
              IsOk());
  this->ExpectNear(b, {18.0 / 81});
}

TYPED_TEST(SpdSolverContractTest, TakesNoRightHandSides) {
  ASSERT_THAT(this->Factorize({1, 0, 0, 1}, 2, 0), IsOk());
  EXPECT_THAT(this->solver().SolveLeft(this->lower_.view(), {nullptr, 2, 0}),
              IsOk());
  EXPECT_THAT(this->solver().SolveRight(this->lower_.view(), {nullptr, 0, 2}),
              IsOk());
}

TYPED_TEST(SpdSolverContractTest, ServesSizesThatChange) {
  ASSERT_THAT(this->Factorize({1, 0, 0, 0, 1, 0, 0, 0, 1}, 3, 0), IsOk());
  ASSERT_THAT(this->Factorize({4}, 1, 0), IsOk());
  EXPECT_THAT(this->lower_.values, ElementsAre(2));
}

// Error of a backward stable solve: a few eps times the condition number; 8
// leaves room for the growth of rounding errors with n.
TYPED_TEST(SpdSolverContractTest, SolvesThreeHundredWithinTheCondition) {
  using T = typename TypeParam::Element;
  constexpr int64_t kN = 300, kK = 4;
  constexpr double kCondition = 1000;
  const Matrix<double> exact = testing::SymmetricWithEigenvalues(
      testing::Spectrum(kN, kCondition), /*seed=*/1);
  const Matrix<double> x = testing::RandomMatrix(kN, kK, /*seed=*/2);
  Matrix<double> b(kN, kK), b_transposed(kK, kN);
  for (int64_t row = 0; row < kN; ++row) {
    for (int64_t col = 0; col < kK; ++col) {
      for (int64_t k = 0; k < kN; ++k) b(row, col) += exact(row, k) * x(k, col);
      b_transposed(col, row) = b(row, col);
    }
  }
  Matrix<T> left = testing::Cast<T>(b);
  Matrix<T> right = testing::Cast<T>(b_transposed);

  ASSERT_THAT(this->Factorize(testing::Cast<T>(exact).values, kN, 0), IsOk());
  ASSERT_THAT(this->solver().SolveLeft(this->lower_.view(), left.view()),
              IsOk());
  ASSERT_THAT(this->solver().SolveRight(this->lower_.view(), right.view()),
              IsOk());

  double error_left = 0, error_right = 0, size = 0;
  for (int64_t row = 0; row < kN; ++row) {
    for (int64_t col = 0; col < kK; ++col) {
      error_left += std::pow(left(row, col) - x(row, col), 2);
      error_right += std::pow(right(col, row) - x(row, col), 2);
      size += std::pow(x(row, col), 2);
    }
  }
  const double tolerance = 8 * this->kEps * kCondition;
  EXPECT_LT(std::sqrt(error_left / size), tolerance);
  EXPECT_LT(std::sqrt(error_right / size), tolerance);
}

TYPED_TEST(SpdSolverContractTest, NamesTheMinorThatIsNotPositive) {
  const auto fails_at = [](const char* order) {
    return StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(order));
  };
  EXPECT_THAT(this->Factorize({-1}, 1, 0), fails_at("order 1"));
  EXPECT_THAT(this->Factorize({1, 0, 2, 1}, 2, 0), fails_at("order 2"));
  EXPECT_THAT(this->Factorize({1, 0, 0, 0, 0, 0, 0, 0, 1}, 3, 0),
              fails_at("order 2"));
}

TYPED_TEST(SpdSolverContractTest, NamesTheMinorBehindManyGoodOnes) {
  using T = typename TypeParam::Element;
  constexpr int64_t kN = 200;  // Beyond the block size of every backend.
  Matrix<T> m(kN, kN);
  for (int64_t i = 0; i < kN; ++i) m(i, i) = i == 150 ? -1 : 1;
  EXPECT_THAT(
      this->Factorize(m.values, kN, 0.5),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("order 151")));
}

TYPED_TEST(SpdSolverContractTest, WorksAfterAFailedFactorize) {
  ASSERT_FALSE(this->Factorize({1, 0, 2, 1}, 2, 0).ok());
  ASSERT_THAT(this->Factorize({9}, 1, 0), IsOk());
  EXPECT_THAT(this->lower_.values, ElementsAre(3));
}

TYPED_TEST(SpdSolverContractTest, RejectsBadMatrices) {
  using T = typename TypeParam::Element;
  const std::vector<T> m = {1, 0, 0, 1, 0, 0, 0, 0, 1};
  Matrix<T> lower(2, 2);
  const auto is_invalid = StatusIs(absl::StatusCode::kInvalidArgument, _);
  EXPECT_THAT(this->solver().Factorize({m.data(), 1, 2}, 0, lower.view()),
              is_invalid);
  EXPECT_THAT(this->solver().Factorize({m.data(), 0, 0}, 0,
                                       {lower.values.data(), 0, 0}),
              is_invalid);
  EXPECT_THAT(
      this->solver().Factorize({m.data(), 3, 3}, 0, lower.view()),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("the factor is [2, 2], the matrix is [3, 3]")));
  EXPECT_THAT(this->Factorize({1, 0, this->kNan, 1}, 2, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("entry at (1, 0)")));
  EXPECT_THAT(this->Factorize({1, 0, 0, INFINITY}, 2, 0), is_invalid);
}

TYPED_TEST(SpdSolverContractTest, RejectsBadDamping) {
  using T = typename TypeParam::Element;
  const auto is_invalid = StatusIs(absl::StatusCode::kInvalidArgument, _);
  EXPECT_THAT(this->Factorize({1}, 1, -1e-3), is_invalid);
  EXPECT_THAT(this->Factorize({1}, 1, NAN), is_invalid);
  EXPECT_THAT(this->Factorize({1}, 1, INFINITY), is_invalid);
  const T max = std::numeric_limits<T>::max();
  EXPECT_THAT(this->Factorize({max}, 1, max), is_invalid);
}

TYPED_TEST(SpdSolverContractTest, RejectsSolvesWhoseShapesDoNotFit) {
  using T = typename TypeParam::Element;
  std::vector<T> b = {1, 2, 3};
  ASSERT_THAT(this->Factorize({1, 0, 0, 1}, 2, 0), IsOk());
  const auto is_invalid = StatusIs(absl::StatusCode::kInvalidArgument, _);
  const ConstMatrixView<T> lower = this->lower_.view();
  EXPECT_THAT(this->solver().SolveLeft(lower, {b.data(), 3, 1}), is_invalid);
  EXPECT_THAT(this->solver().SolveRight(lower, {b.data(), 1, 3}), is_invalid);
  EXPECT_THAT(this->solver().SolveLeft({lower.data, 1, 2}, {b.data(), 1, 1}),
              is_invalid);
  EXPECT_THAT(this->solver().SolveRight({lower.data, 0, 0}, {b.data(), 1, 0}),
              is_invalid);
  EXPECT_THAT(b, ElementsAre(1, 2, 3));
}

// A view can claim any size: nothing behind it may be touched.
TEST(CpuSpdSolverTest, RejectsSizesBeyond32Bits) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto tools,
                                 CreateLinearAlgebra<float>(Device::kCpu));
  constexpr int64_t kHuge = int64_t{1} << 31;
  const auto is_too_large =
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("2147483648"));
  EXPECT_THAT(
      tools.spd->Factorize({nullptr, kHuge, kHuge}, 0, {nullptr, kHuge, kHuge}),
      is_too_large);
  const float one = 1;
  EXPECT_THAT(tools.spd->SolveLeft({&one, 1, 1}, {nullptr, 1, kHuge}),
              is_too_large);
  EXPECT_THAT(tools.spd->SolveRight({&one, 1, 1}, {nullptr, kHuge, 1}),
              is_too_large);
}

}  // namespace
}  // namespace kronserve::linalg
