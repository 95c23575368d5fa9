#include "curvature/damping.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kronserve::curvature {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A = diag(1, 100), G = [4]: pi = sqrt(50.5 / 4).
TEST(SplitDampingTest, FollowsTheTraces) {
  const FactoredDamping split = SplitDamping(101, 2, 4, 1, 0.01);
  EXPECT_NEAR(split.pi, 3.553167600887974, 1e-14);
  EXPECT_NEAR(split.gamma_a, 0.3553167600887974, 1e-15);
  EXPECT_NEAR(split.gamma_g, 0.028143901789211678, 1e-16);
  EXPECT_FALSE(split.clipped);
}

TEST(SplitDampingTest, ZeroDampingAddsNothing) {
  const FactoredDamping split = SplitDamping(101, 2, 4, 1, 0);
  EXPECT_EQ(split.gamma_a, 0);
  EXPECT_EQ(split.gamma_g, 0);
}

TEST(SplitDampingTest, PiIsOneWithoutAUsableTrace) {
  for (const double bad : {0.0, -1.0, kNan, kInfinity}) {
    EXPECT_EQ(SplitDamping(bad, 2, 4, 1, 0.04).pi, 1) << bad;
    const FactoredDamping split = SplitDamping(4, 1, bad, 2, 0.04);
    EXPECT_EQ(split.pi, 1) << bad;
    EXPECT_DOUBLE_EQ(split.gamma_a, 0.2) << bad;
    EXPECT_DOUBLE_EQ(split.gamma_g, 0.2) << bad;
    EXPECT_FALSE(split.clipped) << bad;
  }
}

TEST(SplitDampingTest, ClipsPiOnBothSides) {
  const FactoredDamping high = SplitDamping(1e20, 1, 1e-20, 1, 1e-4);
  EXPECT_EQ(high.pi, 1e12);
  EXPECT_TRUE(high.clipped);
  const FactoredDamping low = SplitDamping(1e-20, 1, 1e20, 1, 1e-4);
  EXPECT_EQ(low.pi, 1e-12);
  EXPECT_TRUE(low.clipped);
  // What ordinary training reaches is left alone.
  const FactoredDamping ordinary = SplitDamping(1e8, 1, 1e-8, 1, 1e-4);
  EXPECT_DOUBLE_EQ(ordinary.pi, 1e8);
  EXPECT_FALSE(ordinary.clipped);
}

TEST(SplitDampingTest, RatioOfTracesMayLeaveTheRangeOfADouble) {
  const FactoredDamping split = SplitDamping(1e300, 1, 1e-300, 1, 1e-4);
  EXPECT_EQ(split.pi, 1e12);
  EXPECT_TRUE(std::isfinite(split.gamma_a));
}

}  // namespace
}  // namespace kronserve::curvature
