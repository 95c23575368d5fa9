#include "curvature/factor_average.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "curvature/testing/golden.h"

namespace kronserve::curvature {
namespace {

using ::testing::ElementsAre;

TEST(WeightOnNewTest, WarmForgetsTheStart) {
  EXPECT_EQ(WeightOnNew(FactorInit::kWarm, 0.95, 1), 1);
  EXPECT_EQ(WeightOnNew(FactorInit::kWarm, 0.95, 2), 0.5);
  EXPECT_EQ(WeightOnNew(FactorInit::kWarm, 0.95, 4), 0.25);
  EXPECT_NEAR(WeightOnNew(FactorInit::kWarm, 0.95, 20), 0.05, 1e-15);
  EXPECT_NEAR(WeightOnNew(FactorInit::kWarm, 0.95, 21), 0.05, 1e-15);
}

TEST(WeightOnNewTest, IdentityAndFirst) {
  EXPECT_DOUBLE_EQ(WeightOnNew(FactorInit::kIdentity, 0.9, 1), 0.1);
  EXPECT_DOUBLE_EQ(WeightOnNew(FactorInit::kIdentity, 0.9, 7), 0.1);
  EXPECT_EQ(WeightOnNew(FactorInit::kFirst, 0.9, 1), 1);
  EXPECT_DOUBLE_EQ(WeightOnNew(FactorInit::kFirst, 0.9, 2), 0.1);
}

TEST(UpdateAverageTest, IdentityStartsAtTheIdentity) {
  std::vector<double> average;
  UpdateAverage<double>({FactorInit::kIdentity, 0.75}, 1, 2, {4, 8, 12},
                        &average);
  // 0.75 (1, 0, 1) + 0.25 (4, 8, 12).
  EXPECT_THAT(average, ElementsAre(1.75, 2, 3.75));
}

TEST(UpdateAverageTest, OthersStartWithTheFirstBatch) {
  for (const FactorInit init : {FactorInit::kWarm, FactorInit::kFirst}) {
    std::vector<float> average;
    UpdateAverage<float>({init, 0.5}, 1, 2, {4, 8, 12}, &average);
    EXPECT_THAT(average, ElementsAre(4, 8, 12));
    UpdateAverage<float>({init, 0.5}, 2, 2, {0, 0, 2}, &average);
    EXPECT_THAT(average, ElementsAre(2, 4, 7));
  }
}

// Start 1, batches of 2, decay 0.999: after 1,000 rounds 2 - 0.999^1000 =
// 1.6323. An accumulator that rounds small steps away would stay near 1.
TEST(UpdateAverageTest, AThousandSmallStepsAddUpInFloat) {
  std::vector<float> average;
  for (int64_t k = 1; k <= 1000; ++k) {
    UpdateAverage<float>({FactorInit::kIdentity, 0.999}, k, 1, {2}, &average);
  }
  EXPECT_NEAR(average[0], 1.632305, 1e-4);
}

template <typename T>
void ExpectGoldenAverages() {
  const testing::Json golden = testing::LoadGolden("linear_3x2");
  const testing::Json& expected = golden["expected"];
  const std::vector<T> a = testing::ToPacked<T>(expected["A"]);
  const std::vector<T> g = testing::ToPacked<T>(expected["G"]);
  for (const testing::Json& ema : expected["ema"]) {
    const double decay = 1 - ema["weight_on_new"].get<double>();
    std::vector<T> average_a, average_g;
    for (const auto& [k, name] : {std::pair{1, "after_1_update"},
                                  std::pair{2, "after_2_updates_same_batch"}}) {
      UpdateAverage<T>({FactorInit::kIdentity, decay}, k, 4, a, &average_a);
      UpdateAverage<T>({FactorInit::kIdentity, decay}, k, 2, g, &average_g);
      const double tolerance = testing::GoldenTolerance<T>();
      testing::ExpectClose(average_a, testing::ToPacked<double>(ema[name]["A"]),
                           tolerance, name);
      testing::ExpectClose(average_g, testing::ToPacked<double>(ema[name]["G"]),
                           tolerance, name);
    }
  }
}

TEST(UpdateAverageTest, GoldenInDouble) { ExpectGoldenAverages<double>(); }
TEST(UpdateAverageTest, GoldenInFloat) { ExpectGoldenAverages<float>(); }

TEST(UpdateAverageTest, SizesThatDoNotFitEndTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  std::vector<float> average = {1, 2};
  const AverageRule rule = {FactorInit::kWarm, 0.5};
  EXPECT_DEATH(UpdateAverage<float>(rule, 2, 2, {4, 8, 12}, &average),
               "average of 2 and batch of 3 elements");
  EXPECT_DEATH(WeightOnNew(FactorInit::kWarm, 0.5, 0), "count from 1");
}

}  // namespace
}  // namespace kronserve::curvature
