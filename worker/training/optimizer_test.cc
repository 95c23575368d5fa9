// Two steps by hand for each optimizer.

#include "worker/training/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

namespace kronserve::worker {
namespace {

// One parameter of two values, p = (1, -2), and the gradient (0.5, 1).
class OptimizerTest : public ::testing::Test {
 protected:
  void Step(Optimizer<double>* optimizer, double lr) {
    optimizer->Step(lr, {{p_, 1, 2}}, {{g_, 1, 2}});
  }
  double p_[2] = {1, -2};
  double g_[2] = {0.5, 1};
};

constexpr double kTolerance = 1e-14;

TEST_F(OptimizerTest, PlainSgdFollowsTheGradient) {
  const auto sgd = CreateSgd<double>({});
  Step(sgd.get(), 0.1);
  EXPECT_NEAR(p_[0], 0.95, kTolerance);
  EXPECT_NEAR(p_[1], -2.1, kTolerance);
}

TEST_F(OptimizerTest, SgdWithMomentumAndWeightDecay) {
  SgdOptions options;
  options.momentum = 0.9;
  options.weight_decay = 0.01;
  const auto sgd = CreateSgd<double>(options);
  Step(sgd.get(), 0.1);
  // u = (0.5 + 0.01, 1 - 0.02) = (0.51, 0.98); p = (0.949, -2.098).
  EXPECT_NEAR(p_[0], 0.949, kTolerance);
  EXPECT_NEAR(p_[1], -2.098, kTolerance);
  Step(sgd.get(), 0.1);
  // u = (0.9 * 0.51 + 0.5 + 0.00949, 0.9 * 0.98 + 1 - 0.02098)
  //   = (0.96849, 1.86102); p = (0.949 - 0.096849, -2.098 - 0.186102).
  EXPECT_NEAR(p_[0], 0.852151, kTolerance);
  EXPECT_NEAR(p_[1], -2.284102, kTolerance);
}

TEST_F(OptimizerTest, AdamsFirstStepHasTheSizeOfTheRate) {
  const auto adam = CreateAdam<double>({});
  Step(adam.get(), 0.1);
  // m^ = g, v^ = g^2: the step is lr g / (|g| + 1e-8).
  EXPECT_NEAR(p_[0], 1 - 0.1 * 0.5 / (0.5 + 1e-8), kTolerance);
  EXPECT_NEAR(p_[1], -2 - 0.1 / (1 + 1e-8), kTolerance);
}

TEST_F(OptimizerTest, AdamsSecondStepWithWeightDecay) {
  AdamOptions options;
  options.beta1 = 0.5;
  options.beta2 = 0.75;
  options.epsilon = 0;
  options.weight_decay = 0.5;
  const auto adam = CreateAdam<double>(options);
  Step(adam.get(), 0.1);
  // Gradients with decay: (0.5 + 0.5, 1 - 1) = (1, 0). A zero gradient with
  // epsilon 0 is 0 / 0, so only the first value is followed.
  EXPECT_NEAR(p_[0], 0.9, kTolerance);
  Step(adam.get(), 0.1);
  // g = 0.5 + 0.45 = 0.95; m = 0.25 + 0.475 = 0.725, m^ = 0.725 / 0.75;
  // v = 0.1875 + 0.25 * 0.9025 = 0.413125, v^ = 0.413125 / 0.4375.
  const double expected =
      0.9 - 0.1 * (0.725 / 0.75) / std::sqrt(0.413125 / 0.4375);
  EXPECT_NEAR(p_[0], expected, kTolerance);
}

TEST_F(OptimizerTest, FloatsTakeTheSamePath) {
  float p[2] = {1, -2};
  float g[2] = {0.5, 1};
  const auto sgd = CreateSgd<float>({/*momentum=*/0.9, /*weight_decay=*/0.01});
  sgd->Step(0.1, {{p, 2, 1}}, {{g, 2, 1}});
  sgd->Step(0.1, {{p, 2, 1}}, {{g, 2, 1}});
  EXPECT_FLOAT_EQ(p[0], 0.852151f);
  EXPECT_FLOAT_EQ(p[1], -2.284102f);
}

}  // namespace
}  // namespace kronserve::worker
