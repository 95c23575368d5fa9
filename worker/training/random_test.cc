#include "worker/training/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace kronserve::worker {
namespace {

TEST(RandomStreamTest, SameSeedAndStreamGiveTheSameNumbers) {
  RandomStream one(7, 3);
  RandomStream same(7, 3);
  RandomStream other_seed(8, 3);
  RandomStream other_stream(7, 4);
  const double first = one.Uniform();
  EXPECT_EQ(first, same.Uniform());
  EXPECT_NE(first, other_seed.Uniform());
  EXPECT_NE(first, other_stream.Uniform());
}

TEST(RandomStreamTest, UniformStaysInItsRange) {
  RandomStream random(1, 0);
  double sum = 0;
  constexpr int kDraws = 100'000;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.Uniform();
    ASSERT_GE(x, 0.0);
    ASSERT_LT(x, 1.0);
    sum += x;
  }
  // Five standard deviations of the mean of uniform numbers.
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(1.0 / 12 / kDraws));
}

TEST(RandomStreamTest, NormalHasItsFirstFourMoments) {
  RandomStream random(2, 0);
  constexpr int kDraws = 200'000;
  double moments[5] = {};
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.Normal();
    ASSERT_TRUE(std::isfinite(x));
    for (int k = 1; k <= 4; ++k) moments[k] += std::pow(x, k) / kDraws;
  }
  // Five standard deviations: Var(x^k) is 1, 2, 15 and 96.
  EXPECT_NEAR(moments[1], 0, 5 * std::sqrt(1.0 / kDraws));
  EXPECT_NEAR(moments[2], 1, 5 * std::sqrt(2.0 / kDraws));
  EXPECT_NEAR(moments[3], 0, 5 * std::sqrt(15.0 / kDraws));
  EXPECT_NEAR(moments[4], 3, 5 * std::sqrt(96.0 / kDraws));
}

TEST(RandomStreamTest, BelowReachesEveryValueEvenly) {
  RandomStream random(3, 0);
  std::vector<int> counts(6);
  constexpr int kDraws = 60'000;
  for (int i = 0; i < kDraws; ++i) ++counts[random.Below(6)];
  for (const int count : counts) {
    // Five standard deviations of a binomial count with p = 1/6.
    EXPECT_NEAR(count, kDraws / 6.0, 5 * std::sqrt(kDraws * 5.0 / 36));
  }
  EXPECT_EQ(random.Below(1), 0u);
}

}  // namespace
}  // namespace kronserve::worker
