#include "worker/gradient_replacer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "linalg/backend.h"

namespace kronserve::worker {
namespace {

using ::kronserve::curvature::Fallback;
using ::testing::ElementsAre;
using ::testing::FloatNear;

class GradientReplacerTest : public ::testing::Test {
 protected:
  // Step one: layer 2 gets V2 = D2 / 2, so r = 0.5. Step two is PROTOCOL.md
  // 7's example: <V1, D1> = 3, layer 2 falls back with <D2, D2> = 2, lr 0.1.
  double RunExample(Fallback fallback) {
    GradientReplacer replacer(fallback, 2, tools_.kernels.get());
    d1_ = {1, 1};
    d2_ = {3, 4};
    const std::vector<float> v2 = {1.5, 2};
    const std::vector<linalg::MatrixView<float>> gradients = {
        {d1_.data(), 1, 2}, {d2_.data(), 1, 2}};
    replacer.Replace({{v1_.data(), 3}, {v2.data(), 12.5}},
                     {0.1, std::nullopt, 0.03}, gradients);
    d1_ = {1, 1};
    d2_ = {1, 1};
    return replacer.Replace({{v1_.data(), 3}, {}}, {0.1, 1e-3, 0.03},
                            gradients);
  }

  linalg::LinearAlgebra<float> tools_ =
      *linalg::CreateLinearAlgebra<float>(linalg::Device::kReference);
  const std::vector<float> v1_ = {1, 2};
  std::vector<float> d1_;
  std::vector<float> d2_;
};

// 1e-6 relative: the example is printed with six digits.
constexpr float kTolerance = 1e-6f;

TEST_F(GradientReplacerTest, MatchedFallbackEntersTheSum) {
  const double nu = RunExample(Fallback::kMatched);
  EXPECT_NEAR(nu, 0.158114, 5e-7);
  EXPECT_THAT(d1_, ElementsAre(FloatNear(0.158114f, kTolerance),
                               FloatNear(0.316228f, kTolerance)));
  EXPECT_THAT(d2_, ElementsAre(FloatNear(0.079057f, kTolerance),
                               FloatNear(0.079057f, kTolerance)));
}

TEST_F(GradientReplacerTest, PlainFallbackStaysAsItIs) {
  const double nu = RunExample(Fallback::kPlain);
  EXPECT_NEAR(nu, 0.182574, 5e-7);
  EXPECT_THAT(d2_, ElementsAre(1, 1));
}

TEST_F(GradientReplacerTest, SkippedLayerIsZero) {
  RunExample(Fallback::kSkip);
  EXPECT_THAT(d2_, ElementsAre(0, 0));
}

TEST_F(GradientReplacerTest, SkippedLayerIsZeroEvenIfNotFinite) {
  GradientReplacer replacer(Fallback::kSkip, 1, tools_.kernels.get());
  d1_ = {std::numeric_limits<float>::quiet_NaN(), 1};
  replacer.Replace({{}}, {0.1, 1e-3, 0.03}, {{d1_.data(), 1, 2}});
  EXPECT_THAT(d1_, ElementsAre(0, 0));
}

TEST_F(GradientReplacerTest, WithoutClippingVIsWrittenBitForBit) {
  GradientReplacer replacer(Fallback::kMatched, 1, tools_.kernels.get());
  d1_ = {1, 1};
  const std::vector<float> v = {0.1f, 1e-30f};
  EXPECT_EQ(replacer.Replace({{v.data(), 1e9}}, {0.1, std::nullopt, 0.03},
                             {{d1_.data(), 1, 2}}),
            1);
  EXPECT_EQ(d1_, v);
}

TEST_F(GradientReplacerTest, BeforeAnyAgreedStepTheRatioIsOne) {
  GradientReplacer replacer(Fallback::kMatched, 1, tools_.kernels.get());
  d1_ = {3, 4};
  replacer.Replace({{}}, {0.1, std::nullopt, 0.03}, {{d1_.data(), 1, 2}});
  EXPECT_THAT(d1_, ElementsAre(3, 4));
}

TEST_F(GradientReplacerTest, MatchedRatioIsCappedByDamping) {
  GradientReplacer replacer(Fallback::kMatched, 1, tools_.kernels.get());
  d1_ = {3, 4};
  const std::vector<float> v = {300, 400};
  const std::vector<linalg::MatrixView<float>> gradients = {{d1_.data(), 1, 2}};
  replacer.Replace({{v.data(), 2500}}, {0.1, std::nullopt, 0.1}, gradients);
  d1_ = {3, 4};
  replacer.Replace({{}}, {0.1, std::nullopt, 0.1}, gradients);
  EXPECT_THAT(d1_, ElementsAre(30, 40));  // r = min(100, 1 / 0.1).
}

}  // namespace
}  // namespace kronserve::worker
