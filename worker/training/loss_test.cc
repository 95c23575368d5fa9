#include "worker/training/loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kronserve::worker {
namespace {

// Row 0: logits (0, log 3): softmax (1/4, 3/4). Row 1: equal logits.
const double kLogits[] = {0, std::log(3.0), 1, 1};
const uint8_t kLabels[] = {1, 0};

TEST(LossTest, MeanCrossEntropyAndItsGradientByHand) {
  double gradient[4];
  const double loss =
      SoftmaxCrossEntropy<double>({kLogits, 2, 2}, kLabels, {gradient, 2, 2});
  EXPECT_NEAR(loss, (std::log(4.0 / 3) + std::log(2.0)) / 2, 1e-15);
  // (softmax - target) / 2 rows.
  EXPECT_NEAR(gradient[0], 0.125, 1e-15);
  EXPECT_NEAR(gradient[1], -0.125, 1e-15);
  EXPECT_NEAR(gradient[2], -0.25, 1e-15);
  EXPECT_NEAR(gradient[3], 0.25, 1e-15);
}

TEST(LossTest, HugeLogitsDoNotOverflow) {
  const float logits[] = {3e38f, -3e38f};
  const uint8_t label = 0;
  float gradient[2];
  EXPECT_EQ(
      SoftmaxCrossEntropy<float>({logits, 1, 2}, &label, {gradient, 1, 2}),
      0.0);
  EXPECT_EQ(gradient[0], 0.0f);
  EXPECT_EQ(gradient[1], 0.0f);
}

TEST(LossTest, NanInTheLogitsShowsInTheLoss) {
  const float logits[] = {0, std::numeric_limits<float>::quiet_NaN()};
  const uint8_t label = 0;
  EXPECT_TRUE(
      std::isnan(SoftmaxCrossEntropy<float>({logits, 1, 2}, &label, {})));
}

TEST(LossTest, CountsRowsWhoseLargestLogitIsTheLabels) {
  EXPECT_EQ(CountCorrect<double>({kLogits, 2, 2}, kLabels), 2);
  const uint8_t wrong[] = {0, 1};
  EXPECT_EQ(CountCorrect<double>({kLogits, 2, 2}, wrong), 0);
}

}  // namespace
}  // namespace kronserve::worker
