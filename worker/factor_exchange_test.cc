#include "worker/factor_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/testing/status_matchers.h"
#include "linalg/backend.h"
#include "worker/testing/ranks.h"

namespace kronserve::worker {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::kronserve::worker::testing::RunGroup;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// d_in 2, d_out 1.
LayerStatistics Data(float scale, int64_t loss_rows, int64_t rows) {
  LayerStatistics statistics;
  statistics.body = v1::CONTRIBUTION_BODY_DATA;
  statistics.input = {{scale, 2 * scale, 3 * scale}, loss_rows, rows};
  statistics.output = {{10 * scale}, loss_rows, rows};
  return statistics;
}

LayerStatistics Empty(v1::ContributionBody body) {
  LayerStatistics statistics;
  statistics.body = body;
  return statistics;
}

linalg::LinearAlgebra<float> Tools() {
  return *linalg::CreateLinearAlgebra<float>(linalg::Device::kReference);
}

TEST(MergeStatistics, AddsSumsAndRows) {
  const auto tools = Tools();
  const LayerStatistics merged =
      MergeStatistics(*tools.kernels, {Data(1, 4, 8), Data(10, 2, 3)});
  EXPECT_EQ(merged.body, v1::CONTRIBUTION_BODY_DATA);
  EXPECT_THAT(merged.input.packed, ElementsAre(11, 22, 33));
  EXPECT_THAT(merged.output.packed, ElementsAre(110));
  EXPECT_EQ(merged.input.loss_rows, 6);
  EXPECT_EQ(merged.output.rows, 11);
}

// 1 + 2^24 is 2^24 in float32: the order shows in the last bit.
TEST(MergeStatistics, AddsInRankOrder) {
  const auto tools = Tools();
  const float big = 16777216;
  const auto last = [&](float a, float b, float c) {
    return MergeStatistics(*tools.kernels,
                           {Data(a, 1, 1), Data(b, 1, 1), Data(c, 1, 1)})
        .input.packed[0];
  };
  EXPECT_EQ(last(1, 1, big), big + 2);
  EXPECT_EQ(last(big, 1, 1), big);
}

TEST(MergeStatistics, RanksWithoutDataAddNothing) {
  const auto tools = Tools();
  const LayerStatistics merged = MergeStatistics(
      *tools.kernels, {Empty(v1::CONTRIBUTION_BODY_EMPTY_NON_FINITE),
                       Data(1, 4, 8), Empty(v1::CONTRIBUTION_BODY_EMPTY_UNUSED),
                       Empty(v1::CONTRIBUTION_BODY_EMPTY_NO_ROWS)});
  EXPECT_EQ(merged.body, v1::CONTRIBUTION_BODY_DATA);
  EXPECT_THAT(merged.input.packed, ElementsAre(1, 2, 3));
  EXPECT_EQ(merged.input.loss_rows, 4);
}

TEST(MergeStatistics, SaysWhyThereIsNoData) {
  const auto tools = Tools();
  const auto unused = Empty(v1::CONTRIBUTION_BODY_EMPTY_UNUSED);
  const auto no_rows = Empty(v1::CONTRIBUTION_BODY_EMPTY_NO_ROWS);
  const auto non_finite = Empty(v1::CONTRIBUTION_BODY_EMPTY_NON_FINITE);
  EXPECT_EQ(MergeStatistics(*tools.kernels, {unused, unused}).body,
            v1::CONTRIBUTION_BODY_EMPTY_UNUSED);
  EXPECT_EQ(MergeStatistics(*tools.kernels, {unused, no_rows}).body,
            v1::CONTRIBUTION_BODY_EMPTY_NO_ROWS);
  EXPECT_EQ(MergeStatistics(*tools.kernels, {no_rows, non_finite, unused}).body,
            v1::CONTRIBUTION_BODY_EMPTY_NON_FINITE);
}

TEST(MergeStatistics, FinitePartsThatOverflowTogetherAreNonFinite) {
  const auto tools = Tools();
  const float most = std::numeric_limits<float>::max() / 20;
  EXPECT_EQ(MergeStatistics(*tools.kernels, {Data(most, 1, 1), Data(most, 1, 1),
                                             Data(most, 1, 1)})
                .body,
            v1::CONTRIBUTION_BODY_EMPTY_NON_FINITE);
}

// Ranks 4, 5 and 7 of a job share a node; 5 collects layer 0, 7 layer 1, and
// 4 layer 2, whose second copy nobody sends.
placement::Delegates ThreeCollectors() {
  placement::Delegates delegates;
  delegates.gradient_rank = {5, 7, 4};
  delegates.contributors = {{0, 5}, {0, 7}, {4}};
  delegates.collector = {{0, 0, 0, 0, 5, 5, 0, 5},
                         {0, 0, 0, 0, 7, 7, 0, 7},
                         {-1, -1, -1, -1, 4, -1, -1, -1}};
  return delegates;
}

TEST(FactorExchange, EachCollectorGetsItsLayersSummedInRankOrder) {
  const std::vector<curvature::LayerShape> layers = {
      {"a", 1, 2, false}, {"b", 1, 2, false}, {"c", 1, 2, false}};
  const std::vector<int> ranks = {4, 5, 7};
  std::vector<std::vector<LayerStatistics>> results(3);
  const auto statistics_of = [](int rank) {
    const float scale = static_cast<float>(rank + 1);
    std::vector<LayerStatistics> mine = {
        Data(scale, 1, 2), Data(10 * scale, 1, 2), Data(100 * scale, 1, 2)};
    if (rank == 1) mine[1] = Empty(v1::CONTRIBUTION_BODY_EMPTY_NON_FINITE);
    return mine;
  };
  RunGroup(3, [&](Communicator& group) {
    const auto tools = Tools();
    FactorExchange exchange(layers, ThreeCollectors(),
                            {ranks, ranks[group.rank()], &group},
                            tools.kernels.get());
    for (int step = 0; step < 2; ++step) {  // Buffers are used again.
      std::vector<LayerStatistics> mine = statistics_of(group.rank());
      ASSERT_THAT(exchange.Run(&mine), IsOk());
      results[group.rank()] = std::move(mine);
    }
  });
  const auto& at5 = results[1];
  EXPECT_THAT(at5[0].input.packed, ElementsAre(6, 12, 18));
  EXPECT_THAT(at5[0].output.packed, ElementsAre(60));
  EXPECT_EQ(at5[0].input.rows, 6);
  EXPECT_EQ(at5[1].body, v1::CONTRIBUTION_BODY_EMPTY_UNUSED);
  EXPECT_EQ(at5[2].body, v1::CONTRIBUTION_BODY_EMPTY_UNUSED);

  const auto& at7 = results[2];
  EXPECT_THAT(at7[1].input.packed, ElementsAre(40, 80, 120));
  EXPECT_EQ(at7[1].input.loss_rows, 2) << "the non-finite rank's rows counted";
  EXPECT_THAT(at7[0].input.packed, IsEmpty());

  EXPECT_THAT(results[0][2].input.packed, ElementsAre(100, 200, 300));
}

TEST(FactorExchange, AloneItNeedsNoGroup) {
  placement::Delegates delegates;
  delegates.gradient_rank = {0, 1};
  delegates.contributors = {{0}, {1}};
  delegates.collector = {{0, -1}, {-1, 1}};
  const auto tools = Tools();
  FactorExchange exchange({{"a", 1, 2, false}, {"b", 1, 2, false}}, delegates,
                          {{0}, 0, nullptr}, tools.kernels.get());
  std::vector<LayerStatistics> mine = {Data(1, 1, 1), Data(1, 1, 1)};
  ASSERT_THAT(exchange.Run(&mine), IsOk());
  EXPECT_THAT(mine[0].input.packed, ElementsAre(1, 2, 3));
  EXPECT_EQ(mine[1].body, v1::CONTRIBUTION_BODY_EMPTY_UNUSED);
}

TEST(FactorExchange, BrokenGroupIsAnError) {
  RunGroup(2, [](Communicator& group) {
    placement::Delegates delegates;
    delegates.gradient_rank = {0};
    delegates.contributors = {{0}};
    delegates.collector = {{0, 0}};
    const auto tools = Tools();
    FactorExchange exchange({{"a", 1, 2, false}}, delegates,
                            {{0, 1}, group.rank(), &group},
                            tools.kernels.get());
    group.Abort();
    std::vector<LayerStatistics> mine = {Data(1, 1, 1)};
    EXPECT_THAT(exchange.Run(&mine),
                StatusIs(absl::StatusCode::kUnavailable, _));
  });
}

}  // namespace
}  // namespace kronserve::worker
