#include "placement/cost_curve.h"

#include <gtest/gtest.h>

namespace kronserve::placement {
namespace {

TEST(CostCurveTest, WeighsCountSquaresAndCubes) {
  const CostCurve curve{1, 0.5, 0.25};
  // Sides 2 and 4: 2 factors, squares 4 + 16, cubes 8 + 64.
  EXPECT_DOUBLE_EQ(RefreshSeconds(curve, LayerWork(2, 4)),
                   2 * 1 + 20 * 0.5 + 72 * 0.25);
  EXPECT_DOUBLE_EQ(RefreshSeconds(curve, FactorWork(2)), 1 + 2 + 2);
}

TEST(CostCurveTest, DefaultIsTheFitOfThePublishedTimes) {
  // METHOD.md A2.4: 35.5 ms at side 4608.
  EXPECT_NEAR(RefreshSeconds(CostCurve(), FactorWork(4608)), 35.5e-3, 0.05e-3);
}

}  // namespace
}  // namespace kronserve::placement
