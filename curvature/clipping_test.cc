#include "curvature/clipping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <vector>

namespace kronserve::curvature {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

LayerStep Preconditioned(double inner_product) {
  LayerStep layer;
  layer.preconditioned = true;
  layer.inner_product = inner_product;
  return layer;
}

LayerStep FellBack(double gradient_squared, double matched_ratio) {
  LayerStep layer;
  layer.gradient_squared = gradient_squared;
  layer.matched_ratio = matched_ratio;
  return layer;
}

// sqrt(1e-3 / (0.01 * 4)): one factor for the whole model.
TEST(ClipStepTest, OneFactorForAllLayers) {
  const StepScale scale = ClipStep({Preconditioned(3), Preconditioned(1)}, 0.1,
                                   1e-3, Fallback::kMatched);
  EXPECT_NEAR(scale.nu, 0.158114, 1e-6);
  EXPECT_THAT(scale.layer_scales,
              ElementsAre(DoubleEq(scale.nu), DoubleEq(scale.nu)));
}

// <V1, D1> = 3; layer 2 falls back with r = 0.5, <D2, D2> = 2.
TEST(ClipStepTest, MatchedEntersTheSumAndIsScaled) {
  const StepScale scale = ClipStep({Preconditioned(3), FellBack(2, 0.5)}, 0.1,
                                   1e-3, Fallback::kMatched);
  EXPECT_NEAR(scale.nu, 0.158114, 1e-6);
  EXPECT_THAT(scale.layer_scales,
              ElementsAre(DoubleEq(scale.nu), DoubleEq(scale.nu * 0.5)));
}

TEST(ClipStepTest, PlainStaysOutside) {
  const StepScale scale = ClipStep({Preconditioned(3), FellBack(2, 0.5)}, 0.1,
                                   1e-3, Fallback::kPlain);
  EXPECT_NEAR(scale.nu, 0.182574, 1e-6);
  EXPECT_THAT(scale.layer_scales, ElementsAre(DoubleEq(scale.nu), 1));
}

TEST(ClipStepTest, SkipIsZero) {
  const StepScale scale = ClipStep({Preconditioned(3), FellBack(2, 0.5)}, 0.1,
                                   1e-3, Fallback::kSkip);
  EXPECT_NEAR(scale.nu, 0.182574, 1e-6);
  EXPECT_THAT(scale.layer_scales, ElementsAre(DoubleEq(scale.nu), 0));
}

TEST(ClipStepTest, NoClipMeansOneAndMatchedKeepsItsRatio) {
  const StepScale scale = ClipStep({Preconditioned(3e9), FellBack(2, 0.25)},
                                   0.1, std::nullopt, Fallback::kMatched);
  EXPECT_EQ(scale.nu, 1);
  EXPECT_THAT(scale.layer_scales, ElementsAre(1, 0.25));
}

TEST(ClipStepTest, SmallStepsAreNotScaledUp) {
  EXPECT_EQ(ClipStep({Preconditioned(1e-9)}, 0.1, 1e-3, Fallback::kMatched).nu,
            1);
}

TEST(ClipStepTest, NegativeSumsCountByTheirSize) {
  EXPECT_NEAR(ClipStep({Preconditioned(-4)}, 0.1, 1e-3, Fallback::kMatched).nu,
              0.158114, 1e-6);
}

TEST(ClipStepTest, ZeroAndNonFiniteSumsGiveOne) {
  for (const double sum : {0.0, kNan, kInfinity, -kInfinity}) {
    EXPECT_EQ(ClipStep({Preconditioned(sum)}, 0.1, 1e-3, Fallback::kMatched).nu,
              1)
        << sum;
  }
  EXPECT_EQ(ClipStep({Preconditioned(4)}, 0, 1e-3, Fallback::kMatched).nu, 1);
  EXPECT_EQ(ClipStep({}, 0.1, 1e-3, Fallback::kMatched).nu, 1);
}

// When the clip is active, lr^2 nu^2 sum <V, D> is kl_clip exactly.
TEST(ClipStepTest, ActiveClipMeetsTheBound) {
  const double lr = 0.3, kl_clip = 2e-3, sum = 0.7 + 11 + 0.004;
  const double nu =
      ClipStep({Preconditioned(0.7), Preconditioned(11), Preconditioned(0.004)},
               lr, kl_clip, Fallback::kMatched)
          .nu;
  ASSERT_LT(nu, 1);
  EXPECT_NEAR(lr * lr * nu * nu * sum, kl_clip, 1e-15);
}

TEST(MatchedRatioTest, IsTheRatioOfNormsUpToTheCap) {
  EXPECT_DOUBLE_EQ(MatchedRatio(6, 2, 0.1), 3);
  EXPECT_DOUBLE_EQ(MatchedRatio(60, 2, 0.1), 10);
  EXPECT_DOUBLE_EQ(MatchedRatio(60, 2, 0), 30);
}

TEST(MatchedRatioTest, IsOneBeforeAnyStep) {
  EXPECT_EQ(MatchedRatio(0, 2, 0.1), 1);
  EXPECT_EQ(MatchedRatio(2, 0, 0.1), 1);
  EXPECT_EQ(MatchedRatio(0, 0, 0.1), 1);
  EXPECT_EQ(MatchedRatio(kNan, 2, 0.1), 1);
  EXPECT_EQ(MatchedRatio(2, kNan, 0.1), 1);
  EXPECT_EQ(MatchedRatio(kInfinity, 2, 0.1), 1);
}

}  // namespace
}  // namespace kronserve::curvature
