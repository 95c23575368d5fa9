#include "curvature/kronecker_factors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "curvature/layer_shape.h"
#include "curvature/testing/golden.h"
#include "linalg/backend.h"
#include "linalg/matrix_view.h"
#include "linalg/packed_triangle.h"
#include "linalg/testing/backends.h"
#include "linalg/testing/random_matrix.h"

namespace kronserve::curvature {
namespace {

using ::kronserve::linalg::Matrix;
using ::testing::ElementsAre;
using testing::ExpectClose;
using testing::GoldenTolerance;
using testing::Json;
using testing::LoadGolden;
using testing::ToMatrix;
using testing::ToPacked;

// What the owner of a layer does once, at the merge.
template <typename T>
std::vector<T> Divided(std::vector<T> packed, int64_t rows) {
  for (T& value : packed) value /= static_cast<T>(rows);
  return packed;
}

// The gradient of the mean loss that a hook sees: per-sample over `n`.
template <typename T>
Matrix<T> HookGradients(Matrix<T> per_sample, int64_t n) {
  for (T& value : per_sample.values) value /= static_cast<T>(n);
  return per_sample;
}

// The `rows` of a golden matrix.
Json SelectRows(const Json& matrix, const Json& rows) {
  Json selected = Json::array();
  for (const int row : rows) selected.push_back(matrix.at(row));
  return selected;
}

template <typename B>
class KroneckerFactorsTest : public linalg::testing::BackendTest<B> {
 protected:
  using T = typename B::Element;
  linalg::DenseKernels<T>& kernels() { return *this->tools_.kernels; }

  // Both sums of one batch of linear rows with a bias.
  void AddLinear(const Json& a, const Json& g, int64_t n, FactorSum<T>* sum_a,
                 FactorSum<T>* sum_g) {
    AccumulateInput<T>(kernels(), ToMatrix<T>(a).view(), true, n, sum_a);
    AccumulateOutputGradient<T>(
        kernels(), HookGradients(ToMatrix<T>(g), n).view(), n, sum_g);
  }

  void ExpectFactors(const FactorSum<T>& sum_a, const FactorSum<T>& sum_g,
                     const Json& expected) {
    ExpectClose(Divided(sum_a.packed, sum_a.loss_rows),
                ToPacked<double>(expected["A"]), GoldenTolerance<T>(), "A");
    ExpectClose(Divided(sum_g.packed, sum_g.rows),
                ToPacked<double>(expected["G"]), GoldenTolerance<T>(), "G");
  }
};

TYPED_TEST_SUITE(KroneckerFactorsTest, linalg::testing::Backends,
                 linalg::testing::BackendName);

TYPED_TEST(KroneckerFactorsTest, GoldenLinear) {
  const Json golden = LoadGolden("linear_3x2");
  FactorSum<typename TypeParam::Element> sum_a, sum_g;
  this->AddLinear(golden["inputs"]["a"], golden["inputs"]["g"], 4, &sum_a,
                  &sum_g);
  EXPECT_EQ(sum_a.loss_rows, 4);
  EXPECT_EQ(sum_a.rows, 4);
  EXPECT_EQ(sum_g.rows, 4);
  this->ExpectFactors(sum_a, sum_g, golden["expected"]);
}

// Workers see hooks of their own mean; merged sums give the global factors,
// whatever the split.
TYPED_TEST(KroneckerFactorsTest, GoldenWorkersMergeToTheGlobalFactors) {
  using T = typename TypeParam::Element;
  const Json golden = LoadGolden("linear_3x2");
  for (const char* split : {"two_equal", "two_unequal"}) {
    FactorSum<T> merged_a, merged_g;
    for (const Json& worker : golden["expected"]["workers"][split]) {
      FactorSum<T> sum_a, sum_g;
      this->AddLinear(SelectRows(golden["inputs"]["a"], worker["rows"]),
                      SelectRows(golden["inputs"]["g"], worker["rows"]),
                      worker["samples"].get<int64_t>(), &sum_a, &sum_g);
      this->ExpectFactors(sum_a, sum_g, worker);
      AddFactorSum(sum_a, &merged_a);
      AddFactorSum(sum_g, &merged_g);
    }
    EXPECT_EQ(merged_a.loss_rows, 4) << split;
    EXPECT_EQ(merged_g.rows, 4) << split;
    this->ExpectFactors(merged_a, merged_g, golden["expected"]);
  }
}

TYPED_TEST(KroneckerFactorsTest, MicroBatchesAddUp) {
  using T = typename TypeParam::Element;
  const Json golden = LoadGolden("linear_3x2");
  FactorSum<T> sum_a, sum_g;
  for (const Json& rows : {Json{0, 1, 2}, Json{3}}) {
    this->AddLinear(SelectRows(golden["inputs"]["a"], rows),
                    SelectRows(golden["inputs"]["g"], rows), rows.size(),
                    &sum_a, &sum_g);
  }
  EXPECT_EQ(sum_a.loss_rows, 4);
  this->ExpectFactors(sum_a, sum_g, golden["expected"]);
}

// A = SA / n and G = SG / (n T): the scale of KFC.
TYPED_TEST(KroneckerFactorsTest, GoldenConvolution) {
  using T = typename TypeParam::Element;
  const Json golden = LoadGolden("conv2d_1to2");
  ConvGeometry geometry;
  geometry.in_channels = 1;
  geometry.in_height = geometry.in_width = 3;
  geometry.kernel_height = geometry.kernel_width = 2;
  ASSERT_EQ(geometry.out_height() * geometry.out_width(), 4);

  std::vector<T> images, gradients;
  for (int sample = 0; sample < 2; ++sample) {
    const Matrix<T> image = ToMatrix<T>(golden["inputs"]["x"][sample][0]);
    images.insert(images.end(), image.values.begin(), image.values.end());
    Matrix<T> patches(4, 4);
    UnfoldPatches<T>(image.values.data(), geometry, patches.view());
    const Matrix<T> expected =
        ToMatrix<T>(golden["expected"]["patches"][sample]);
    // The example's patches end with the 1 of the bias.
    for (int64_t i = 0; i < patches.size(); ++i) {
      EXPECT_EQ(patches.values[i], expected(i / 4, i % 4));
    }
    for (int channel = 0; channel < 2; ++channel) {
      const Matrix<T> hooks =
          HookGradients(ToMatrix<T>(golden["inputs"]["g"][sample][channel]), 2);
      gradients.insert(gradients.end(), hooks.values.begin(),
                       hooks.values.end());
    }
  }
  FactorSum<T> sum_a, sum_g;
  AccumulateConvInput<T>(this->kernels(), {images.data(), 2, geometry}, true, 2,
                         &sum_a);
  AccumulateConvOutputGradient<T>(this->kernels(), {gradients.data(), 2, 2, 4},
                                  2, &sum_g);
  EXPECT_EQ(sum_a.loss_rows, 2);
  EXPECT_EQ(sum_g.rows, 8);
  ExpectClose(sum_a.packed, ToPacked<double>(golden["expected"]["SA"]),
              GoldenTolerance<T>(), "SA");
  ExpectClose(sum_g.packed, ToPacked<double>(golden["expected"]["SG"]),
              GoldenTolerance<T>(), "SG");
  this->ExpectFactors(sum_a, sum_g, golden["expected"]["conventions"]["kfc"]);
}

// Sequences: all tokens are rows. N is what the loss was averaged over.
TYPED_TEST(KroneckerFactorsTest, GoldenExpand) {
  using T = typename TypeParam::Element;
  const Json golden = LoadGolden("expand_reduce");
  Json a = Json::array(), g = Json::array();
  for (int sequence = 0; sequence < 2; ++sequence) {
    for (int token = 0; token < 3; ++token) {
      a.push_back(golden["inputs"]["a"][sequence][token]);
      g.push_back(golden["inputs"]["g"][sequence][token]);
    }
  }
  const Matrix<T> inputs = ToMatrix<T>(a);
  // Of the mean over the two sequences.
  const Matrix<T> hooks = HookGradients(ToMatrix<T>(g), 2);
  const Json& variants = golden["expected"]["variants"];
  for (const auto& [loss_rows, variant] :
       {std::pair{2, "expand_A_n_G_nT"},
        std::pair{6, "expand_tokens_as_batch"}}) {
    FactorSum<T> sum_a, sum_g;
    AccumulateInput<T>(this->kernels(), inputs.view(), true, loss_rows, &sum_a);
    AccumulateOutputGradient<T>(this->kernels(), hooks.view(), loss_rows,
                                &sum_g);
    EXPECT_EQ(sum_g.rows, 6);
    this->ExpectFactors(sum_a, sum_g, variants[variant]);
  }
}

// Sequences, reduced by the caller: mean input, sum of gradients.
TYPED_TEST(KroneckerFactorsTest, GoldenReduce) {
  using T = typename TypeParam::Element;
  const Json golden = LoadGolden("expand_reduce");
  Json a_mean = golden["expected"]["a_mean"];
  for (Json& row : a_mean) row.erase(2);  // The bias's 1.
  FactorSum<T> sum_a, sum_g;
  this->AddLinear(a_mean, golden["expected"]["g_sum"], 2, &sum_a, &sum_g);
  this->ExpectFactors(sum_a, sum_g,
                      golden["expected"]["variants"]["reduce_sum"]);
}

TYPED_TEST(KroneckerFactorsTest, WithoutABiasThereIsNoColumnOfOnes) {
  using T = typename TypeParam::Element;
  const std::vector<T> inputs = {1, 2, 3, 4};
  FactorSum<T> sum;
  AccumulateInput<T>(this->kernels(), {inputs.data(), 2, 2}, false, 2, &sum);
  EXPECT_THAT(sum.packed, ElementsAre(10, 14, 20));
  AccumulateInput<T>(this->kernels(), {inputs.data(), 1, 2}, false, 1, &sum);
  EXPECT_THAT(sum.packed, ElementsAre(11, 16, 24));
  EXPECT_EQ(sum.loss_rows, 3);
  EXPECT_EQ(sum.rows, 3);
}

TYPED_TEST(KroneckerFactorsTest, NoRowsAddNothing) {
  using T = typename TypeParam::Element;
  FactorSum<T> sum;
  AccumulateInput<T>(this->kernels(), {nullptr, 0, 2}, true, 0, &sum);
  EXPECT_THAT(sum.packed, ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_EQ(sum.rows, 0);
  ConvGeometry geometry;
  geometry.in_channels = geometry.in_height = geometry.in_width = 1;
  FactorSum<T> conv;
  AccumulateConvInput<T>(this->kernels(), {nullptr, 0, geometry}, true, 0,
                         &conv);
  EXPECT_THAT(conv.packed, ElementsAre(0, 0, 0));
  EXPECT_EQ(conv.rows, 0);
}

// A 1x1 kernel on 1x1 images is a linear layer: the same bits.
TYPED_TEST(KroneckerFactorsTest, PointwiseConvolutionEqualsLinear) {
  using T = typename TypeParam::Element;
  const Matrix<T> rows =
      linalg::testing::Cast<T>(linalg::testing::RandomMatrix(20, 7, 11));
  ConvGeometry geometry;
  geometry.in_channels = 7;
  geometry.in_height = geometry.in_width = 1;
  FactorSum<T> linear_a, conv_a, linear_g, conv_g;
  AccumulateInput<T>(this->kernels(), rows.view(), true, 20, &linear_a);
  AccumulateConvInput<T>(this->kernels(), {rows.values.data(), 20, geometry},
                         true, 20, &conv_a);
  AccumulateOutputGradient<T>(this->kernels(), rows.view(), 20, &linear_g);
  AccumulateConvOutputGradient<T>(this->kernels(),
                                  {rows.values.data(), 20, 7, 1}, 20, &conv_g);
  EXPECT_EQ(linear_a.packed, conv_a.packed);
  EXPECT_EQ(linear_g.packed, conv_g.packed);
  EXPECT_EQ(linear_a.rows, conv_a.rows);
}

// More rows than go to a kernel together, and a last block that is not full.
TYPED_TEST(KroneckerFactorsTest, BlocksOfImagesAddUpToTheSameSum) {
  using T = typename TypeParam::Element;
  constexpr int64_t kBatch = 7;
  ConvGeometry geometry;
  geometry.in_channels = 2;
  geometry.in_height = geometry.in_width = 12;
  geometry.kernel_height = geometry.kernel_width = 3;
  geometry.padding = 1;
  const int64_t positions = geometry.out_height() * geometry.out_width();
  ASSERT_EQ(positions, 144);
  const Matrix<T> images = linalg::testing::Cast<T>(
      linalg::testing::RandomMatrix(kBatch, int64_t{2} * 144, 12));
  FactorSum<T> together, one_by_one;
  AccumulateConvInput<T>(this->kernels(),
                         {images.values.data(), kBatch, geometry}, true, kBatch,
                         &together);
  for (int64_t i = 0; i < kBatch; ++i) {
    AccumulateConvInput<T>(this->kernels(),
                           {images.values.data() + i * 288, 1, geometry}, true,
                           1, &one_by_one);
  }
  EXPECT_EQ(together.rows, kBatch * positions);
  EXPECT_EQ(one_by_one.rows, together.rows);
  // Sums of 1,008 products in another order.
  ExpectClose(together.packed, one_by_one.packed, 1008 * this->kEps, "sum");
}

// Padding 1, stride 2, dilation 2, two channels, not square; by hand:
// the image rows are (1 2 3 4) and (5 6 7 8), the second channel is +10.
TEST(UnfoldPatchesTest, PaddingStrideDilationAndChannels) {
  std::vector<float> image;
  for (int i = 1; i <= 8; ++i) image.push_back(static_cast<float>(i));
  for (int i = 11; i <= 18; ++i) image.push_back(static_cast<float>(i));
  ConvGeometry geometry;
  geometry.in_channels = 2;
  geometry.in_height = 2;
  geometry.in_width = 4;
  geometry.kernel_height = 1;
  geometry.kernel_width = 2;
  geometry.stride = 2;
  geometry.padding = 1;
  geometry.dilation = 2;
  ASSERT_EQ(geometry.out_height(), 2);
  ASSERT_EQ(geometry.out_width(), 2);
  ASSERT_EQ(geometry.patch_size(), 4);
  Matrix<float> patches(4, 4);
  UnfoldPatches<float>(image.data(), geometry, patches.view());
  // Output rows look at image rows -1 and 1; columns at (-1, 1) and (1, 3).
  EXPECT_THAT(patches.values, ElementsAre(0, 0, 0, 0,   //
                                          0, 0, 0, 0,   //
                                          0, 6, 0, 16,  //
                                          6, 8, 16, 18));
}

TEST(KroneckerFactorsDeathTest, SizesThatDoNotFitEndTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  FactorSum<float> three{{1, 2, 3}, 1, 1}, one{{1}, 1, 1};
  EXPECT_DEATH(AddFactorSum(one, &three), "sums of 1 and 3 elements");
  ConvGeometry geometry;
  geometry.in_channels = geometry.in_height = geometry.in_width = 1;
  float image = 0, patches[2];
  EXPECT_DEATH(UnfoldPatches<float>(&image, geometry, {patches, 1, 2}),
               "patches are \\[1, 2\\], expected \\[1, 1\\]");
}

TEST(AddFactorSumTest, TheEmptySumIsNeutral) {
  const FactorSum<float> some{{1, 2, 3}, 4, 5};
  FactorSum<float> sum;
  AddFactorSum(FactorSum<float>(), &sum);
  AddFactorSum(some, &sum);
  AddFactorSum(FactorSum<float>(), &sum);
  EXPECT_THAT(sum.packed, ElementsAre(1, 2, 3));
  EXPECT_EQ(sum.loss_rows, 4);
  EXPECT_EQ(sum.rows, 5);
}

}  // namespace
}  // namespace kronserve::curvature
