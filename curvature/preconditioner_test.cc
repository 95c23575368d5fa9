// Properties that hold for all inputs, and inputs that broke other systems.

#include "curvature/preconditioner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"
#include "curvature/clipping.h"
#include "curvature/factor_average.h"
#include "curvature/testing/golden.h"
#include "curvature/testing/layer_tools.h"
#include "linalg/matrix_view.h"
#include "linalg/packed_triangle.h"
#include "linalg/testing/backends.h"
#include "linalg/testing/random_matrix.h"

namespace kronserve::curvature {
namespace {

using ::kronserve::linalg::Matrix;
using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::Each;
using testing::ExpectClose;
using ::testing::HasSubstr;
using testing::MakeMatrix;
using ::testing::Truly;

// The three ways to damp.
constexpr RefreshOptions Inverse(double damping) {
  return {Method::kInverse, DampingForm::kFactored, damping};
}
constexpr RefreshOptions FactoredEigen(double damping) {
  return {Method::kEigen, DampingForm::kFactored, damping};
}
constexpr RefreshOptions ExactEigen(double damping) {
  return {Method::kEigen, DampingForm::kExact, damping};
}
std::vector<RefreshOptions> AllForms(double damping) {
  return {Inverse(damping), FactoredEigen(damping), ExactEigen(damping)};
}

template <typename T>
std::vector<T> Packed(const Matrix<double>& full) {
  const Matrix<T> narrow = linalg::testing::Cast<T>(full);
  std::vector<T> packed(linalg::PackedSize(full.rows));
  linalg::PackUpper<T>(narrow.view(), packed.data());
  return packed;
}

template <typename T>
std::vector<T> PackedDiagonal(const std::vector<double>& diagonal) {
  const int64_t n = static_cast<int64_t>(diagonal.size());
  Matrix<double> full(n, n);
  for (int64_t i = 0; i < n; ++i) full(i, i) = diagonal[i];
  return Packed<T>(full);
}

// Solves (A (x) G + damping I) vec(V) = vec(D), column-major vec, densely and
// in double, by Gaussian elimination without a pivot (the matrix is positive
// definite).
Matrix<double> DenseExact(const Matrix<double>& a, const Matrix<double>& g,
                          const Matrix<double>& d, double damping) {
  const int64_t n = a.rows * g.rows;
  Matrix<double> m(n, n), x(n, 1);
  const auto row_of = [&](int64_t i) { return i % g.rows; };
  const auto col_of = [&](int64_t i) { return i / g.rows; };
  for (int64_t i = 0; i < n; ++i) {
    x.values[i] = d(row_of(i), col_of(i));
    for (int64_t j = 0; j < n; ++j) {
      m(i, j) = a(col_of(i), col_of(j)) * g(row_of(i), row_of(j)) +
                (i == j ? damping : 0);
    }
  }
  for (int64_t k = 0; k < n; ++k) {
    for (int64_t i = k + 1; i < n; ++i) {
      const double factor = m(i, k) / m(k, k);
      for (int64_t j = k; j < n; ++j) m(i, j) -= factor * m(k, j);
      x.values[i] -= factor * x.values[k];
    }
  }
  Matrix<double> v(d.rows, d.cols);
  for (int64_t i = n - 1; i >= 0; --i) {
    for (int64_t j = i + 1; j < n; ++j) x.values[i] -= m(i, j) * x.values[j];
    x.values[i] /= m(i, i);
    v(row_of(i), col_of(i)) = x.values[i];
  }
  return v;
}

template <typename B>
class PreconditionerTest : public ::testing::Test {
 protected:
  using T = typename B::Element;
  static constexpr double kEps = std::numeric_limits<T>::epsilon();

  testing::LayerTools<T> tools_{B::kDevice};
  // A random layer [5, 8].
  const Matrix<double> a_ = linalg::testing::SymmetricWithEigenvalues(
      linalg::testing::Spectrum(8, 30), /*seed=*/21);
  const Matrix<double> g_ = linalg::testing::SymmetricWithEigenvalues(
      linalg::testing::Spectrum(5, 10), /*seed=*/22);
  const Matrix<double> d_ = linalg::testing::RandomMatrix(5, 8, /*seed=*/23);
  const Matrix<T> gradient_ = linalg::testing::Cast<T>(d_);
};

TYPED_TEST_SUITE(PreconditionerTest, linalg::testing::Backends,
                 linalg::testing::BackendName);

TYPED_TEST(PreconditionerTest, ExactFormEqualsTheDenseSolve) {
  using T = typename TypeParam::Element;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(
      const auto result,
      this->tools_.Run(Packed<T>(this->a_), Packed<T>(this->g_),
                       this->gradient_, ExactEigen(0.1)));
  const Matrix<double> expected = DenseExact(this->a_, this->g_, this->d_, 0.1);
  // 1e-12 in double: condition 300 times a few eps.
  ExpectClose(result.v.values, expected.values, 4500 * this->kEps, "V");
  double inner_product = 0;
  for (int64_t i = 0; i < expected.size(); ++i) {
    inner_product += expected.values[i] * this->d_.values[i];
  }
  EXPECT_NEAR(result.inner_product / inner_product, 1, 4500 * this->kEps);
}

TYPED_TEST(PreconditionerTest, FactoredFormDoesNotSeeHowTheScaleIsSplit) {
  using T = typename TypeParam::Element;
  constexpr double kScale = 64;  // A power of two changes exponents only.
  Matrix<double> a = this->a_, g = this->g_;
  for (double& value : a.values) value *= kScale;
  for (double& value : g.values) value /= kScale;
  for (const RefreshOptions& options : {Inverse(0.1), FactoredEigen(0.1)}) {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        const auto before,
        this->tools_.Run(Packed<T>(this->a_), Packed<T>(this->g_),
                         this->gradient_, options));
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        const auto after,
        this->tools_.Run(Packed<T>(a), Packed<T>(g), this->gradient_, options));
    ExpectClose(after.v.values, before.v.values, 1000 * this->kEps, "V");
  }
}

TYPED_TEST(PreconditionerTest, RefreshingTwiceGivesTheSameBits) {
  using T = typename TypeParam::Element;
  const std::vector<T> a = Packed<T>(this->a_), g = Packed<T>(this->g_);
  for (const RefreshOptions& options : AllForms(0.1)) {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        const auto first, this->tools_.Run(a, g, this->gradient_, options));
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        const auto second, this->tools_.Run(a, g, this->gradient_, options));
    EXPECT_EQ(first.factorization.a.values, second.factorization.a.values);
    EXPECT_EQ(first.factorization.g.values, second.factorization.g.values);
    EXPECT_EQ(first.v.values, second.v.values);
  }
}

TYPED_TEST(PreconditionerTest, LargeDampingLeavesTheGradientOverDamping) {
  using T = typename TypeParam::Element;
  constexpr double kDamping = 1e12;
  for (const RefreshOptions& options : AllForms(kDamping)) {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        auto result, this->tools_.Run(Packed<T>(this->a_), Packed<T>(this->g_),
                                      this->gradient_, options));
    for (T& value : result.v.values) value *= static_cast<T>(kDamping);
    // Factored: gammas near 1e6 against eigenvalues up to 30.
    ExpectClose(result.v.values, this->d_.values, 1e-4, "V * damping");
  }
}

TYPED_TEST(PreconditionerTest, ActiveClipMeetsTheBound) {
  using T = typename TypeParam::Element;
  for (const RefreshOptions& options : AllForms(0.1)) {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        const auto result,
        this->tools_.Run(Packed<T>(this->a_), Packed<T>(this->g_),
                         this->gradient_, options));
    LayerStep layer;
    layer.preconditioned = true;
    layer.inner_product = result.inner_product;
    const double nu = ClipStep({layer}, 1, 1e-3, Fallback::kMatched).nu;
    ASSERT_LT(nu, 1);
    // lr^2 nu^2 <V, D>, from V and D themselves.
    double sum = 0;
    for (int64_t i = 0; i < result.v.size(); ++i) {
      sum += nu * nu * result.v.values[i] * this->gradient_.values[i];
    }
    EXPECT_NEAR(sum / 1e-3, 1, 100 * this->kEps);
  }
}

TYPED_TEST(PreconditionerTest, NewDampingActsAtTheNextAnswerOfTheEigenForm) {
  using T = typename TypeParam::Element;
  for (const RefreshOptions& options : AllForms(0.1)) {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        const auto old,
        this->tools_.Run(Packed<T>(this->a_), Packed<T>(this->g_),
                         this->gradient_, options));
    RefreshOptions newer = options;
    newer.damping = 0.7;
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        const auto refreshed,
        this->tools_.Run(Packed<T>(this->a_), Packed<T>(this->g_),
                         this->gradient_, newer));
    Matrix<T> v = this->gradient_;
    ASSERT_THAT(
        Precondition<T>(this->tools_.working, old.factorization, 0.7, v.view()),
        IsOk());
    EXPECT_EQ(v.values, options.method == Method::kEigen ? refreshed.v.values
                                                         : old.v.values);
  }
}

// Dense, unequal factors that do not commute. Sides swapped would give
// [[0, 0.6667], [0, -0.3333]], multiplying [[12, 15], [4, 5]].
TYPED_TEST(PreconditionerTest, EachFactorOnItsSideAndInverted) {
  using T = typename TypeParam::Element;
  Matrix<double> a(2, 2), g(2, 2);
  a.values = {2, 1, 1, 2};
  g.values = {3, 1, 1, 2};
  for (const RefreshOptions& options : AllForms(0)) {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        const auto result,
        this->tools_.Run(Packed<T>(a), Packed<T>(g),
                         MakeMatrix<T>(2, 2, {1, 2, 0, 0}), options));
    ExpectClose(result.v.values, std::vector<double>{0, 0.4, 0, -0.2},
                50 * this->kEps, "V");
  }
}

// in = 64, A = u u^T with u_i = 1e-3 (i + 1); out = 8, G = I; damping 1e-3.
TYPED_TEST(PreconditionerTest, RankOneFactorMatchesTheExactOracle) {
  using T = typename TypeParam::Element;
  Matrix<double> a(64, 64);
  std::vector<double> u(64);
  double u_squared = 0;
  for (int64_t i = 0; i < 64; ++i) {
    u[i] = 1e-3 * static_cast<double>(i + 1);
    u_squared += u[i] * u[i];
  }
  for (int64_t i = 0; i < 64; ++i) {
    for (int64_t j = 0; j < 64; ++j) a(i, j) = u[i] * u[j];
  }
  const Matrix<double> d = linalg::testing::RandomMatrix(8, 64, /*seed=*/31);
  // Sherman-Morrison: d (u u^T + l I)^-1 = (d - (d u) u^T / (l + u u)) / l.
  Matrix<double> expected(8, 64);
  for (int64_t row = 0; row < 8; ++row) {
    double du = 0;
    for (int64_t col = 0; col < 64; ++col) du += d(row, col) * u[col];
    for (int64_t col = 0; col < 64; ++col) {
      expected(row, col) =
          (d(row, col) - du * u[col] / (1e-3 + u_squared)) / 1e-3;
    }
  }
  KRONSERVE_ASSERT_OK_AND_ASSIGN(
      const auto result,
      this->tools_.Run(Packed<T>(a),
                       PackedDiagonal<T>({1, 1, 1, 1, 1, 1, 1, 1}),
                       linalg::testing::Cast<T>(d), ExactEigen(1e-3)));
  EXPECT_EQ(result.factorization.rung, Rung::kDirect);
  ExpectClose(result.v.values, expected.values, 1e-4, "V");
  EXPECT_THAT(std::vector<T>(result.factorization.values_a.begin(),
                             result.factorization.values_a.end() - 1),
              Each(T{0}));
  // The inverse method is finite on it, too.
  EXPECT_THAT(this->tools_.Run(Packed<T>(a),
                               PackedDiagonal<T>({1, 1, 1, 1, 1, 1, 1, 1}),
                               linalg::testing::Cast<T>(d), Inverse(1e-3)),
              IsOk());
}

TYPED_TEST(PreconditionerTest, DampingAtTheEdgeOfPrecisionStaysFinite) {
  using T = typename TypeParam::Element;
  const std::vector<T> a = PackedDiagonal<T>({1, 1e-4, 1e-8, 1e-17});
  const auto is_finite = [](T value) { return std::isfinite(value); };
  for (const double damping : {1e-3, 1e-8, 1e-16, 0.0}) {
    for (const RefreshOptions& options : AllForms(damping)) {
      KRONSERVE_ASSERT_OK_AND_ASSIGN(
          const auto result,
          this->tools_.Run(a, {1}, MakeMatrix<T>(1, 4, {1, 1, 1, 1}), options));
      EXPECT_THAT(result.v.values, Each(Truly(is_finite)))
          << "damping " << damping;
      // Raised damping is flagged and said; none had to be raised here.
      EXPECT_EQ(result.factorization.rung, Rung::kDirect);
      EXPECT_EQ(result.factorization.damping, damping);
    }
  }
}

// A component whose denominator is exactly 0 becomes 0.
TYPED_TEST(PreconditionerTest, ZeroOverZeroIsZero) {
  using T = typename TypeParam::Element;
  for (const RefreshOptions& options : {FactoredEigen(0), ExactEigen(0)}) {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        const auto result,
        this->tools_.Run(PackedDiagonal<T>({4, 0}), {2},
                         MakeMatrix<T>(1, 2, {8, 3}), options));
    ExpectClose(result.v.values, std::vector<double>{1, 0}, 10 * this->kEps,
                "V");
  }
}

// A zero row and column (a feature that never fires), and one of 1e-30.
TYPED_TEST(PreconditionerTest, DeadInputFeature) {
  using T = typename TypeParam::Element;
  for (const double dead : {0.0, 1e-30}) {
    Matrix<double> a(6, 6);
    a.values.assign(a.size(), 0.1);
    for (int64_t i = 0; i < 6; ++i) {
      a(i, i) = 1;
      a(i, 2) = a(2, i) = 0;
    }
    a(2, 2) = dead;
    const Matrix<T> gradient =
        linalg::testing::Cast<T>(linalg::testing::RandomMatrix(2, 6, 41));
    const std::vector<T> g = PackedDiagonal<T>({1, 2});
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        const auto inverse,
        this->tools_.Run(Packed<T>(a), g, gradient, Inverse(1e-3)));
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        const auto eigen,
        this->tools_.Run(Packed<T>(a), g, gradient, FactoredEigen(1e-3)));
    EXPECT_EQ(inverse.factorization.rung, Rung::kDirect);
    ExpectClose(inverse.v.values, eigen.v.values, 1e-4, "V");
  }
}

TYPED_TEST(PreconditionerTest, OneByOne) {
  using T = typename TypeParam::Element;
  for (const RefreshOptions& options : AllForms(0)) {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        const auto result,
        this->tools_.Run({4}, {9}, MakeMatrix<T>(1, 1, {6}), options));
    EXPECT_NEAR(result.v(0, 0), 6.0 / 36, 4 * this->kEps);
    EXPECT_NEAR(result.inner_product, 1, 8 * this->kEps);
  }
  for (const RefreshOptions& options : AllForms(0.01)) {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        const auto result,
        this->tools_.Run({0}, {0}, MakeMatrix<T>(1, 1, {0}), options));
    EXPECT_EQ(result.v(0, 0), 0);
    EXPECT_EQ(result.inner_product, 0);
  }
}

TYPED_TEST(PreconditionerTest, OneRowOrOneColumn) {
  using T = typename TypeParam::Element;
  for (const RefreshOptions& options : AllForms(0)) {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        const auto row,
        this->tools_.Run(PackedDiagonal<T>({1, 2, 4}), {2},
                         MakeMatrix<T>(1, 3, {2, 4, 8}), options));
    ExpectClose(row.v.values, std::vector<double>{1, 1, 1}, 10 * this->kEps,
                "V");
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        const auto column,
        this->tools_.Run({2}, PackedDiagonal<T>({1, 2, 4}),
                         MakeMatrix<T>(3, 1, {2, 4, 8}), options));
    ExpectClose(column.v.values, std::vector<double>{1, 1, 1}, 10 * this->kEps,
                "V");
  }
}

// Step 0 is all zero; step 1 is averaged as documented: weight 1/2.
TYPED_TEST(PreconditionerTest, ZeroInZeroOutThenAsIfNothingHadHappened) {
  using T = typename TypeParam::Element;
  const std::vector<T> zero_a(linalg::PackedSize(8), 0);
  const std::vector<T> zero_g(linalg::PackedSize(5), 0);
  for (const RefreshOptions& options : AllForms(0.03)) {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        const auto result,
        this->tools_.Run(zero_a, zero_g, Matrix<T>(5, 8), options));
    EXPECT_THAT(result.v.values, Each(T{0}));
    EXPECT_EQ(result.inner_product, 0);

    std::vector<T> average_a, average_g;
    const auto update = [&](int64_t k, const std::vector<T>& a,
                            const std::vector<T>& g) {
      UpdateAverage<T>({FactorInit::kWarm, 0.95}, k, 8, a, &average_a);
      UpdateAverage<T>({FactorInit::kWarm, 0.95}, k, 5, g, &average_g);
    };
    update(1, zero_a, zero_g);
    update(2, Packed<T>(this->a_), Packed<T>(this->g_));
    Matrix<double> half_a = this->a_, half_g = this->g_;
    for (double& value : half_a.values) value /= 2;
    for (double& value : half_g.values) value /= 2;
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        const auto after,
        this->tools_.Run(average_a, average_g, this->gradient_, options));
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        const auto fresh, this->tools_.Run(Packed<T>(half_a), Packed<T>(half_g),
                                           this->gradient_, options));
    EXPECT_EQ(after.v.values, fresh.v.values);
  }
}

TYPED_TEST(PreconditionerTest, RejectsBadCallsAndKeepsTheGradient) {
  using T = typename TypeParam::Element;
  for (const RefreshOptions& options : AllForms(0.1)) {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        const auto factorization,
        Refresh<T>(this->tools_.refresh(), {Packed<T>(this->a_), 8},
                   {Packed<T>(this->g_), 5}, options));
    Matrix<T> v = this->gradient_;
    linalg::LinearAlgebra<T>& tools = this->tools_.working;
    EXPECT_THAT(
        Precondition<T>(tools, factorization, 0.1, {v.values.data(), 8, 5}),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr("gradient is [8, 5], the factorisation is "
                           "for [5, 8]")));
    for (const double damping : {-0.1, double{NAN}, double{INFINITY}}) {
      EXPECT_THAT(Precondition<T>(tools, factorization, damping, v.view()),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           HasSubstr("damping must be finite")));
    }
    EXPECT_EQ(v.values, this->gradient_.values);
  }
}

TYPED_TEST(PreconditionerTest, ReportsAResultThatIsNotFinite) {
  using T = typename TypeParam::Element;
  for (const RefreshOptions& options : AllForms(0.1)) {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(
        const auto factorization,
        Refresh<T>(this->tools_.refresh(), {Packed<T>(this->a_), 8},
                   {Packed<T>(this->g_), 5}, options));
    Matrix<T> v = this->gradient_;
    v(2, 3) = std::numeric_limits<T>::quiet_NaN();
    EXPECT_THAT(
        Precondition<T>(this->tools_.working, factorization, 0.1, v.view()),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 HasSubstr("not finite")));
  }
}

}  // namespace
}  // namespace kronserve::curvature
