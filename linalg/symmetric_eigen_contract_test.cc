// What every SymmetricEigen backend must do.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"
#include "linalg/matrix_view.h"
#include "linalg/reference/factory.h"
#include "linalg/symmetric_eigen.h"
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
class SymmetricEigenContractTest : public testing::BackendTest<B> {
 protected:
  using T = typename B::Element;

  absl::Status Decompose(const std::vector<T>& m, int64_t n) {
    vectors_ = Matrix<T>(n, n);
    values_.assign(n, 0);
    return this->tools_.eigen->Decompose({m.data(), n, n}, vectors_.view(),
                                         values_.data());
  }

  // Largest entry of |Q diag(values) Q^T - M| and of |Q^T Q - I|, in double.
  double LargestError(const Matrix<double>& m) const {
    double worst = 0;
    for (int64_t i = 0; i < m.rows; ++i) {
      for (int64_t j = 0; j < m.cols; ++j) {
        worst = std::max(worst, ErrorAt(m, i, j));
      }
    }
    return worst;
  }

  double ErrorAt(const Matrix<double>& m, int64_t i, int64_t j) const {
    double product = 0, gram = 0;
    for (int64_t k = 0; k < m.rows; ++k) {
      product += double(vectors_(i, k)) * values_[k] * vectors_(j, k);
      gram += double(vectors_(k, i)) * vectors_(k, j);
    }
    return std::max(std::abs(product - m(i, j)),
                    std::abs(gram - (i == j ? 1 : 0)));
  }

  Matrix<T> vectors_;
  std::vector<T> values_;
};

TYPED_TEST_SUITE(SymmetricEigenContractTest, testing::Backends,
                 testing::BackendName);

// [[2, 1], [1, 2]] has 1 with (1, -1) and 3 with (1, 1), over sqrt 2. The NaN
// shows that the upper triangle is not read.
TYPED_TEST(SymmetricEigenContractTest, DecomposesTwoByTwoByHand) {
  ASSERT_THAT(this->Decompose({2, this->kNan, 1, 2}, 2), IsOk());
  const double tolerance = 10 * this->kEps;
  EXPECT_NEAR(this->values_[0], 1, tolerance);
  EXPECT_NEAR(this->values_[1], 3, tolerance);
  const double half = std::sqrt(0.5);
  const auto& q = this->vectors_;
  EXPECT_NEAR(std::abs(q(0, 0)), half, tolerance);
  EXPECT_NEAR(q(0, 0), -q(1, 0), tolerance);
  EXPECT_NEAR(std::abs(q(0, 1)), half, tolerance);
  EXPECT_NEAR(q(0, 1), q(1, 1), tolerance);
}

TYPED_TEST(SymmetricEigenContractTest, LeavesNegativeValuesAsFound) {
  ASSERT_THAT(this->Decompose({0, 0, 2, 0}, 2), IsOk());
  EXPECT_NEAR(this->values_[0], -2, 10 * this->kEps);
  EXPECT_NEAR(this->values_[1], 2, 10 * this->kEps);
}

TYPED_TEST(SymmetricEigenContractTest, TakesOneByOneAndZero) {
  ASSERT_THAT(this->Decompose({-5}, 1), IsOk());
  EXPECT_THAT(this->values_, ElementsAre(-5));
  EXPECT_EQ(std::abs(this->vectors_(0, 0)), 1);

  ASSERT_THAT(this->Decompose({0, 0, 0, 0}, 2), IsOk());
  EXPECT_THAT(this->values_, ElementsAre(0, 0));
  EXPECT_EQ(this->LargestError(Matrix<double>(2, 2)), 0);
}

TYPED_TEST(SymmetricEigenContractTest, SortsAscending) {
  ASSERT_THAT(this->Decompose({3, 0, 0, 0, 1, 0, 0, 0, 2}, 3), IsOk());
  EXPECT_THAT(this->values_, ElementsAre(1, 2, 3));
}

// A backward stable method is off by a few eps times the largest eigenvalue;
// 100 covers the growth with n.
TYPED_TEST(SymmetricEigenContractTest, ReproducesARandomMatrix) {
  using T = typename TypeParam::Element;
  constexpr int64_t kN = 80;
  constexpr double kLargest = 100;
  const std::vector<double> spectrum = testing::Spectrum(kN, kLargest);
  const Matrix<double> m =
      testing::SymmetricWithEigenvalues(spectrum, /*seed=*/4);
  ASSERT_THAT(this->Decompose(testing::Cast<T>(m).values, kN), IsOk());
  const double tolerance = 100 * this->kEps * kLargest;
  EXPECT_LT(this->LargestError(m), tolerance);
  for (int64_t i = 0; i < kN; ++i) {
    EXPECT_NEAR(this->values_[i], spectrum[i], tolerance) << "at " << i;
  }
}

TYPED_TEST(SymmetricEigenContractTest, TakesRepeatedEigenvalues) {
  using T = typename TypeParam::Element;
  std::vector<double> spectrum(30, 1.0);
  spectrum[29] = 5;
  const Matrix<double> m =
      testing::SymmetricWithEigenvalues(spectrum, /*seed=*/5);
  ASSERT_THAT(this->Decompose(testing::Cast<T>(m).values, 30), IsOk());
  EXPECT_LT(this->LargestError(m), 100 * this->kEps * 5);
}

TYPED_TEST(SymmetricEigenContractTest, KeepsTheInput) {
  using T = typename TypeParam::Element;
  const std::vector<T> m = {2, 9, 1, 2};
  ASSERT_THAT(this->Decompose(m, 2), IsOk());
  EXPECT_THAT(m, ElementsAre(2, 9, 1, 2));
}

TYPED_TEST(SymmetricEigenContractTest, RejectsBadArguments) {
  using T = typename TypeParam::Element;
  const std::vector<T> m = {1, 0, 0, 1, 0, 0, 0, 0, 1};
  Matrix<T> vectors(2, 2);
  std::vector<T> values(3);
  SymmetricEigen<T>& eigen = *this->tools_.eigen;
  const auto is_invalid = StatusIs(absl::StatusCode::kInvalidArgument, _);
  EXPECT_THAT(eigen.Decompose({m.data(), 1, 2}, vectors.view(), values.data()),
              is_invalid);
  EXPECT_THAT(eigen.Decompose({m.data(), 0, 0}, {vectors.values.data(), 0, 0},
                              values.data()),
              is_invalid);
  EXPECT_THAT(eigen.Decompose({m.data(), 3, 3}, vectors.view(), values.data()),
              is_invalid);
  EXPECT_THAT(this->Decompose({1, 0, this->kNan, 1}, 2), is_invalid);
  EXPECT_THAT(this->Decompose({INFINITY}, 1), is_invalid);
}

TEST(ReferenceSymmetricEigenTest, SaysWhenItDoesNotConverge) {
  const auto eigen = reference::CreateSymmetricEigen<double>(/*max_sweeps=*/0);
  const double m[] = {2, 1, 1, 2};
  double vectors[4], values[2];
  EXPECT_THAT(eigen->Decompose({m, 2, 2}, {vectors, 2, 2}, values),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("did not converge in 0 Jacobi sweeps")));
}

TEST(ReferenceSymmetricEigenTest, TakesEntriesWhoseSquaresOverflow) {
  const auto eigen = reference::CreateSymmetricEigen<double>();
  const double m[] = {2e200, 1e200, 1e200, 2e200};
  double vectors[4], values[2];
  ASSERT_THAT(eigen->Decompose({m, 2, 2}, {vectors, 2, 2}, values), IsOk());
  EXPECT_NEAR(values[0] / 1e200, 1, 1e-14);
  EXPECT_NEAR(values[1] / 1e200, 3, 1e-14);
}

// A view can claim any size: nothing behind it may be touched.
TEST(CpuSymmetricEigenTest, RejectsSizesBeyond32Bits) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto tools,
                                 CreateLinearAlgebra<double>(Device::kCpu));
  for (const int64_t n : {int64_t{32767}, int64_t{1} << 31}) {
    EXPECT_THAT(
        tools.eigen->Decompose({nullptr, n, n}, {nullptr, n, n}, nullptr),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most")));
  }
}

}  // namespace
}  // namespace kronserve::linalg
