// What every DenseKernels backend must do.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "linalg/dense_kernels.h"
#include "linalg/matrix_view.h"
#include "linalg/testing/backends.h"
#include "linalg/testing/random_matrix.h"

namespace kronserve::linalg {
namespace {

using ::testing::ElementsAre;

constexpr Transpose kNo = Transpose::kNo;
constexpr Transpose kYes = Transpose::kYes;

template <typename B>
class DenseKernelsContractTest : public testing::BackendTest<B> {
 protected:
  using T = typename B::Element;
  DenseKernels<T>& kernels() { return *this->tools_.kernels; }
};

TYPED_TEST_SUITE(DenseKernelsContractTest, testing::Backends,
                 testing::BackendName);

// [[1, 2, 3], [4, 5, 6]] times [[1, 0], [2, 1], [0, 3]] is
// [[5, 11], [14, 23]]; small integers are exact in every precision.
TYPED_TEST(DenseKernelsContractTest, MultipliesByHandInEveryTransposition) {
  using T = typename TypeParam::Element;
  const std::vector<T> a = {1, 2, 3, 4, 5, 6};
  const std::vector<T> a_transposed = {1, 4, 2, 5, 3, 6};
  const std::vector<T> b = {1, 0, 2, 1, 0, 3};
  const std::vector<T> b_transposed = {1, 2, 0, 0, 1, 3};
  std::vector<T> c(4);
  const MatrixView<T> out(c.data(), 2, 2);

  this->kernels().Gemm(kNo, kNo, 1, {a.data(), 2, 3}, {b.data(), 3, 2}, 0, out);
  EXPECT_THAT(c, ElementsAre(5, 11, 14, 23));
  this->kernels().Gemm(kYes, kNo, 1, {a_transposed.data(), 3, 2},
                       {b.data(), 3, 2}, 0, out);
  EXPECT_THAT(c, ElementsAre(5, 11, 14, 23));
  this->kernels().Gemm(kNo, kYes, 1, {a.data(), 2, 3},
                       {b_transposed.data(), 2, 3}, 0, out);
  EXPECT_THAT(c, ElementsAre(5, 11, 14, 23));
  this->kernels().Gemm(kYes, kYes, 2, {a_transposed.data(), 3, 2},
                       {b_transposed.data(), 2, 3}, 0, out);
  EXPECT_THAT(c, ElementsAre(10, 22, 28, 46));
}

TYPED_TEST(DenseKernelsContractTest, GemmAddsBetaTimesTheOldValue) {
  using T = typename TypeParam::Element;
  const std::vector<T> a = {2}, b = {3, 5};
  std::vector<T> c = {1, 10};
  this->kernels().Gemm(kNo, kNo, 1, {a.data(), 1, 1}, {b.data(), 1, 2}, 0.5,
                       {c.data(), 1, 2});
  EXPECT_THAT(c, ElementsAre(6.5, 15));
}

TYPED_TEST(DenseKernelsContractTest, BetaZeroDoesNotReadTheOldValue) {
  using T = typename TypeParam::Element;
  const std::vector<T> a = {2, 1};
  std::vector<T> c(4, this->kNan);
  this->kernels().Gemm(kYes, kNo, 1, {a.data(), 1, 2}, {a.data(), 1, 2}, 0,
                       {c.data(), 2, 2});
  EXPECT_THAT(c, ElementsAre(4, 2, 2, 1));
  c.assign(4, this->kNan);
  this->kernels().SyrkUpper(1, {a.data(), 1, 2}, 0, {c.data(), 2, 2});
  EXPECT_THAT((std::vector<T>{c[0], c[1], c[3]}), ElementsAre(4, 2, 1));
}

TYPED_TEST(DenseKernelsContractTest, GemmOfNothing) {
  using T = typename TypeParam::Element;
  std::vector<T> c = {1, 2};
  // Depth 0: C := beta C.
  this->kernels().Gemm(kNo, kNo, 1, {nullptr, 2, 0}, {nullptr, 0, 1}, 2,
                       {c.data(), 2, 1});
  EXPECT_THAT(c, ElementsAre(2, 4));
  this->kernels().Gemm(kNo, kNo, 1, {nullptr, 2, 0}, {nullptr, 0, 1}, 0,
                       {c.data(), 2, 1});
  EXPECT_THAT(c, ElementsAre(0, 0));
  const std::vector<T> a = {1, 2};
  this->kernels().Gemm(kNo, kNo, 1, {a.data(), 2, 1}, {nullptr, 1, 0}, 0,
                       {nullptr, 2, 0});
}

// X^T X of [[1, 2], [3, 4], [5, 6]] is [[35, 44], [44, 56]].
TYPED_TEST(DenseKernelsContractTest, SyrkWritesTheUpperTriangleOnly) {
  using T = typename TypeParam::Element;
  const std::vector<T> x = {1, 2, 3, 4, 5, 6};
  std::vector<T> c = {1, 1, -7, 1};
  this->kernels().SyrkUpper(2, {x.data(), 3, 2}, 3, {c.data(), 2, 2});
  EXPECT_THAT(c, ElementsAre(73, 91, -7, 115));
}

TYPED_TEST(DenseKernelsContractTest, SyrkOfNoRows) {
  using T = typename TypeParam::Element;
  std::vector<T> c = {1, 2, 3, 4};
  this->kernels().SyrkUpper(1, {nullptr, 0, 2}, 1, {c.data(), 2, 2});
  EXPECT_THAT(c, ElementsAre(1, 2, 3, 4));
  this->kernels().SyrkUpper(1, {nullptr, 0, 2}, 0, {c.data(), 2, 2});
  EXPECT_THAT(c, ElementsAre(0, 0, 3, 0));
}

// An inner product of `depth` terms is off by less than depth eps |a| |b|.
TYPED_TEST(DenseKernelsContractTest, AgreesWithDoubleOnRandomMatrices) {
  using T = typename TypeParam::Element;
  constexpr int64_t kRows = 70, kDepth = 130, kCols = 45;
  const Matrix<double> a = testing::RandomMatrix(kDepth, kRows, /*seed=*/6);
  const Matrix<double> b = testing::RandomMatrix(kDepth, kCols, /*seed=*/7);
  const Matrix<T> a_t = testing::Cast<T>(a);
  const Matrix<T> b_t = testing::Cast<T>(b);
  Matrix<T> product(kRows, kCols), gram(kRows, kRows);
  this->kernels().Gemm(kYes, kNo, 1, a_t.view(), b_t.view(), 0, product.view());
  this->kernels().SyrkUpper(1, a_t.view(), 0, gram.view());
  // Rows of 130 normal numbers have length near 11.4; 200 bounds |a| |b|.
  const double tolerance = kDepth * this->kEps * 200;
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kCols; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < kDepth; ++k) sum += a(k, i) * b(k, j);
      ASSERT_NEAR(product(i, j), sum, tolerance) << i << ", " << j;
    }
    for (int64_t j = i; j < kRows; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < kDepth; ++k) sum += a(k, i) * a(k, j);
      ASSERT_NEAR(gram(i, j), sum, tolerance) << i << ", " << j;
    }
  }
}

TYPED_TEST(DenseKernelsContractTest, DotAddsInDouble) {
  using T = typename TypeParam::Element;
  // In float 2^24 + 1 + 1 stays at 2^24.
  const std::vector<T> a = {16777216, 1, 1}, ones = {1, 1, 1};
  EXPECT_EQ(this->kernels().Dot(a.data(), ones.data(), 3), 16777218.0);
  EXPECT_EQ(this->kernels().Dot(nullptr, nullptr, 0), 0.0);
  // A square that T may not hold.
  const std::vector<T> large = {static_cast<T>(1e30)};
  EXPECT_NEAR(this->kernels().Dot(large.data(), large.data(), 1) / 1e60, 1,
              4 * this->kEps);
}

TYPED_TEST(DenseKernelsContractTest, CountsNonFinite) {
  using T = typename TypeParam::Element;
  std::vector<T> values(100, 1);
  EXPECT_EQ(this->kernels().CountNonFinite(values.data(), 100), 0);
  EXPECT_EQ(this->kernels().CountNonFinite(nullptr, 0), 0);
  values[3] = this->kNan;
  values[50] = INFINITY;
  values[99] = -INFINITY;
  values[98] = std::numeric_limits<T>::max();
  values[97] = std::numeric_limits<T>::denorm_min();
  EXPECT_EQ(this->kernels().CountNonFinite(values.data(), 100), 3);
  EXPECT_EQ(this->kernels().CountNonFinite(values.data(), 50), 1);
}

TYPED_TEST(DenseKernelsContractTest, ShapesThatDoNotFitEndTheProcess) {
  using T = typename TypeParam::Element;
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  std::vector<T> m(9);
  EXPECT_DEATH(this->kernels().Gemm(kNo, kNo, 1, {m.data(), 2, 3},
                                    {m.data(), 2, 3}, 0, {m.data(), 2, 3}),
               "Gemm of \\[2, 3\\] by \\[2, 3\\] into \\[2, 3\\]");
  EXPECT_DEATH(
      this->kernels().SyrkUpper(1, {m.data(), 2, 3}, 0, {m.data(), 2, 2}),
      "SyrkUpper of \\[2, 3\\] into \\[2, 2\\]");
}

}  // namespace
}  // namespace kronserve::linalg
