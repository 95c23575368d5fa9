#include "placement/delegates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace kronserve::placement {
namespace {

using ::testing::ElementsAre;

// Weights 100, 8, 50, 2 (d_in^2 + d_out^2).
const std::vector<LayerDims> kLayers = {{8, 6}, {2, 2}, {5, 5}, {1, 1}};

TEST(DelegatesTest, OneRankDoesEverything) {
  const Delegates delegates =
      ChooseDelegates({"n"}, kLayers, FactorSource::kAll);
  EXPECT_THAT(delegates.gradient_rank, ElementsAre(0, 0, 0, 0));
  for (int layer = 0; layer < 4; ++layer) {
    EXPECT_THAT(delegates.contributors[layer], ElementsAre(0));
    EXPECT_THAT(delegates.collector[layer], ElementsAre(0));
  }
}

TEST(DelegatesTest, HeaviestFirstToTheNodeWithTheLeast) {
  const Delegates delegates =
      ChooseDelegates({"x", "y"}, kLayers, FactorSource::kOneRank);
  // 100 to x; 50, then 8, then 2 to y (58 and 60 stay below 100).
  EXPECT_THAT(delegates.gradient_rank, ElementsAre(0, 1, 1, 1));
}

TEST(DelegatesTest, OneRankIsTheOnlyContributorAndCollectsItsOwn) {
  const Delegates delegates =
      ChooseDelegates({"x", "y"}, kLayers, FactorSource::kOneRank);
  EXPECT_THAT(delegates.contributors[0], ElementsAre(0));
  EXPECT_THAT(delegates.contributors[2], ElementsAre(1));
  EXPECT_THAT(delegates.collector[0], ElementsAre(0, -1));
  EXPECT_THAT(delegates.collector[2], ElementsAre(-1, 1));
}

TEST(DelegatesTest, AllHasOneContributorPerNode) {
  // Ranks 0 and 2 share x; 1 and 3 share y.
  const Delegates delegates =
      ChooseDelegates({"x", "y", "x", "y"}, kLayers, FactorSource::kAll);
  // Layer 0 (100): home x, its rank 0; y's rank 1. Layer 2 (50): home y, its
  // idle rank 3; x's idle rank 2.
  EXPECT_THAT(delegates.gradient_rank, ElementsAre(0, 3, 3, 3));
  EXPECT_THAT(delegates.contributors[0], ElementsAre(0, 1));
  EXPECT_THAT(delegates.contributors[2], ElementsAre(2, 3));
  EXPECT_THAT(delegates.collector[0], ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(delegates.collector[2], ElementsAre(2, 3, 2, 3));
}

TEST(DelegatesTest, TheGradientRankContributes) {
  const std::vector<std::string> nodes = {"a", "a", "b", "c", "c", "c"};
  std::vector<LayerDims> layers;
  for (int64_t side = 1; side <= 40; ++side) layers.push_back({side, 3});
  for (FactorSource source : {FactorSource::kAll, FactorSource::kOneRank}) {
    const Delegates delegates = ChooseDelegates(nodes, layers, source);
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      const std::vector<int>& in = delegates.contributors[layer];
      EXPECT_TRUE(std::binary_search(in.begin(), in.end(),
                                     delegates.gradient_rank[layer]));
      EXPECT_EQ(in.size(), source == FactorSource::kAll ? 3u : 1u);
      for (int rank : in) EXPECT_EQ(delegates.collector[layer][rank], rank);
    }
  }
}

TEST(DelegatesTest, EqualLayersSpreadEvenly) {
  const std::vector<LayerDims> layers(12, LayerDims{64, 64});
  const Delegates delegates =
      ChooseDelegates({"a", "a", "b", "b"}, layers, FactorSource::kOneRank);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(std::count(delegates.gradient_rank.begin(),
                         delegates.gradient_rank.end(), rank),
              3);
  }
}

TEST(DelegatesTest, NoLayersIsLegal) {
  EXPECT_TRUE(
      ChooseDelegates({"a"}, {}, FactorSource::kAll).gradient_rank.empty());
}

}  // namespace
}  // namespace kronserve::placement
