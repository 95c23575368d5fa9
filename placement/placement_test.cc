#include "placement/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"

namespace kronserve::placement {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One second per factor, nothing else: the cost is what `work.factors` says.
constexpr CostCurve kUnit{1, 0, 0};

PlacedLayer Layer(double seconds, int64_t bytes = 0, int owner = kNoServer) {
  PlacedLayer layer;
  layer.name = absl::StrCat("cost", seconds);
  layer.work.factors = seconds;
  layer.bytes = bytes;
  layer.owner = owner;
  return layer;
}

PlacementServer Server(const std::string& name, int64_t free_bytes = 1000) {
  PlacementServer server;
  server.name = name;
  server.curve = kUnit;
  server.free_bytes = free_bytes;
  return server;
}

TEST(PlacementTest, LongestFirstToTheLeastLoaded) {
  PlacementProblem problem;
  problem.layers = {Layer(3), Layer(5), Layer(4), Layer(2)};
  problem.servers = {Server("a"), Server("b")};
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Placement placement, Place(problem));
  // 5 to a, 4 to b, 3 to b, 2 to a.
  EXPECT_THAT(placement.owners, ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(placement.load_seconds, ElementsAre(7, 7));
}

TEST(PlacementTest, TiesGoToTheLowestIndex) {
  PlacementProblem problem;
  problem.layers = {Layer(1), Layer(1), Layer(1)};
  problem.servers = {Server("a"), Server("b")};
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Placement placement, Place(problem));
  EXPECT_THAT(placement.owners, ElementsAre(0, 1, 0));
}

TEST(PlacementTest, AFasterServerGetsMore) {
  PlacementProblem problem;
  problem.layers = {Layer(4), Layer(4), Layer(4)};
  problem.servers = {Server("slow"), Server("fast")};
  problem.servers[1].curve.seconds = 0.5;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Placement placement, Place(problem));
  // fast finishes at 2, then at 4 (a tie with slow at 4, which is lower).
  EXPECT_THAT(placement.owners, ElementsAre(1, 0, 1));
  EXPECT_THAT(placement.load_seconds, ElementsAre(4, 4));
}

TEST(PlacementTest, LoadOfOtherJobsCounts) {
  PlacementProblem problem;
  problem.layers = {Layer(1), Layer(1)};
  problem.servers = {Server("a"), Server("b")};
  problem.servers[0].load_seconds = 10;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Placement placement, Place(problem));
  EXPECT_THAT(placement.owners, ElementsAre(1, 1));
}

TEST(PlacementTest, OwnersAreKept) {
  PlacementProblem problem;
  problem.layers = {Layer(9, 0, 1), Layer(1, 0, 1), Layer(2), Layer(1)};
  problem.servers = {Server("a"), Server("b"), Server("c")};
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Placement placement, Place(problem));
  EXPECT_THAT(placement.owners, ElementsAre(1, 1, 0, 2));
}

TEST(PlacementTest, AServerThatAcceptsNoMoreKeepsWhatItHas) {
  PlacementProblem problem;
  problem.layers = {Layer(1, 0, 0), Layer(5)};
  problem.servers = {Server("a"), Server("b")};
  problem.servers[0].accepts_more = false;
  problem.servers[1].load_seconds = 100;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Placement placement, Place(problem));
  EXPECT_THAT(placement.owners, ElementsAre(0, 1));
}

TEST(PlacementTest, MemoryGoesBeforeBalance) {
  PlacementProblem problem;
  // By time alone, 6 goes to a (100 free), 5 to b, and the big one nowhere.
  problem.layers = {Layer(6, 40), Layer(5, 40), Layer(1, 90)};
  problem.servers = {Server("a", 100), Server("b", 80)};
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Placement placement, Place(problem));
  EXPECT_THAT(placement.owners, ElementsAre(1, 1, 0));
}

TEST(PlacementTest, CountsOneWorkspaceAndFixedBytesPerServer) {
  PlacementProblem problem;
  problem.fixed_bytes = 7;
  problem.layers = {Layer(1, 10), Layer(1, 10)};
  problem.layers[0].workspace_bytes = 5;
  problem.layers[1].workspace_bytes = 4;
  problem.servers = {Server("a", 10 + 10 + 5 + 7)};
  EXPECT_THAT(Place(problem), IsOk());
  problem.servers[0].free_bytes -= 1;
  EXPECT_THAT(Place(problem),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("a")));
}

TEST(PlacementTest, WhatDoesNotFitIsRefusedWithBothNumbers) {
  PlacementProblem problem;
  problem.layers = {Layer(1, 60), Layer(2, 70)};
  problem.servers = {Server("a", 65), Server("b", 50)};
  EXPECT_THAT(Place(problem),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("layer 'cost2' needs 70 bytes"),
                             HasSubstr("all layers need at least 130 bytes"),
                             HasSubstr("the servers have 115 free"),
                             HasSubstr("'b' 50 bytes"))));
}

TEST(PlacementTest, PartialLeavesOutWhatDoesNotFit) {
  PlacementProblem problem;
  problem.partial = true;
  problem.layers = {Layer(1, 60), Layer(2, 70)};
  problem.servers = {Server("a", 65)};
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Placement placement, Place(problem));
  EXPECT_THAT(placement.owners, ElementsAre(0, kNoServer));
  problem.servers.clear();
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Placement nothing, Place(problem));
  EXPECT_THAT(nothing.owners, ElementsAre(kNoServer, kNoServer));
}

TEST(PlacementTest, RejectsAnOwnerThatIsNoServer) {
  PlacementProblem problem;
  problem.layers = {Layer(1, 0, 2)};
  problem.servers = {Server("a"), Server("b")};
  EXPECT_THAT(Place(problem),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("owner 2 is not one of 2 servers")));
}

TEST(PlacementTest, WithoutServersItIsUnavailable) {
  PlacementProblem problem;
  problem.layers = {Layer(1)};
  EXPECT_THAT(Place(problem),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no server")));
  problem.layers.clear();
  EXPECT_THAT(Place(problem), IsOk());
}

TEST(PlacementTest, SaturatedBytesNeverFit) {
  PlacementProblem problem;
  problem.layers = {Layer(1, INT64_MAX), Layer(1, INT64_MAX)};
  problem.servers = {Server("a", int64_t{1} << 62)};
  EXPECT_THAT(Place(problem), StatusIs(absl::StatusCode::kResourceExhausted,
                                       HasSubstr("9223372036854775807")));
}

TEST(PlacementTest, ASwapImprovesOnLongestFirst) {
  PlacementProblem problem;
  problem.layers = {Layer(3), Layer(3), Layer(2), Layer(2), Layer(2)};
  problem.servers = {Server("a"), Server("b")};
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Placement greedy,
                                 PlaceLongestFirst(problem));
  EXPECT_THAT(greedy.load_seconds, ElementsAre(7, 5));
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Placement placement, Place(problem));
  EXPECT_THAT(placement.load_seconds, ElementsAre(6, 6));
}

TEST(PlacementTest, ImprovementKeepsOwnersAndMemoryLimits) {
  PlacementProblem problem;
  problem.layers = {Layer(3, 0, 0), Layer(3, 0, 1), Layer(2, 0, 0), Layer(2),
                    Layer(2)};
  problem.servers = {Server("a"), Server("b")};
  // 5 and 3 are kept: 2 to b, then 2 to a (a tie); the only swap that would
  // help is one with a kept layer.
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Placement kept, Place(problem));
  EXPECT_THAT(kept.owners, ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(kept.load_seconds, ElementsAre(7, 5));
  // As in the test above, but a 3 (20 bytes) cannot leave a for b.
  problem.layers = {Layer(3, 20), Layer(3, 20), Layer(2, 10), Layer(2, 10),
                    Layer(2, 10)};
  problem.servers = {Server("a", 40), Server("b", 30)};
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Placement tight, Place(problem));
  EXPECT_THAT(tight.load_seconds, ElementsAre(7, 5));
}

TEST(PlacementTest, AMoveImprovesWhatMemoryMadeUneven) {
  PlacementProblem problem;
  // By time the 50 bytes are left out; by bytes b gets 50 and 40, a the rest.
  problem.layers = {Layer(5, 40), Layer(4, 30), Layer(1, 50)};
  problem.servers = {Server("a", 120), Server("b", 90)};
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Placement placement, Place(problem));
  EXPECT_THAT(placement.load_seconds, ElementsAre(5, 5));
}

TEST(PlacementTest, APinIsKept) {
  PlacementProblem problem;
  problem.layers = {Layer(4), Layer(4), Layer(4)};
  problem.servers = {Server("a"), Server("b")};
  for (PlacedLayer& layer : problem.layers) layer.pinned_to = 1;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Placement placement, Place(problem));
  EXPECT_THAT(placement.owners, ElementsAre(1, 1, 1));
  problem.layers[0].pinned_to = 2;
  EXPECT_THAT(Place(problem),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("pinned to 2, not one of 2 servers")));
}

TEST(PlacementTest, ADrainingServerGetsNothing) {
  PlacementProblem problem;
  problem.layers = {Layer(1, 0, 0), Layer(5)};
  problem.servers = {Server("a"), Server("b")};
  problem.servers[0].draining = true;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Placement placement, Place(problem));
  EXPECT_THAT(placement.owners, ElementsAre(0, 1));
  problem.servers[1].draining = true;
  EXPECT_THAT(Place(problem),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no server")));
}

// Sides 4096 x3, 1024 x12, 64 x60 on three servers, in adversarial orders,
// with the weight of a solve, d^3.
class AdversarialOrderTest : public ::testing::TestWithParam<int> {};

TEST_P(AdversarialOrderTest, StaysWithinFourThirdsOfTheLowerBound) {
  std::vector<int64_t> sides;
  sides.insert(sides.end(), 3, 4096);
  sides.insert(sides.end(), 12, 1024);
  sides.insert(sides.end(), 60, 64);
  if (GetParam() == 1) std::reverse(sides.begin(), sides.end());
  if (GetParam() == 2)
    std::rotate(sides.begin(), sides.begin() + 8, sides.end());
  PlacementProblem problem;
  problem.servers = {Server("a"), Server("b"), Server("c")};
  std::vector<RefreshWork> works;
  for (PlacementServer& server : problem.servers) server.curve = {0, 0, 1};
  for (int64_t side : sides) {
    PlacedLayer layer;
    layer.work = FactorWork(side);
    works.push_back(layer.work);
    problem.layers.push_back(layer);
  }
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Placement placement, Place(problem));
  const double largest = *std::max_element(placement.load_seconds.begin(),
                                           placement.load_seconds.end());
  double total = 0;
  for (int64_t side : sides) total += static_cast<double>(side * side * side);
  const double bound = std::max(total / 3, 4096.0 * 4096 * 4096);
  EXPECT_DOUBLE_EQ(LowerBoundSeconds(works, {{0, 0, 1}, {0, 0, 1}, {0, 0, 1}}),
                   bound);
  EXPECT_LE(largest, 4.0 / 3.0 * bound);
}

INSTANTIATE_TEST_SUITE_P(Orders, AdversarialOrderTest,
                         ::testing::Values(0, 1, 2));

TEST(LowerBoundTest, IsTheLargestOrTheEvenShare) {
  const std::vector<CostCurve> two = {kUnit, kUnit};
  EXPECT_DOUBLE_EQ(LowerBoundSeconds({{9, 0, 0}, {1, 0, 0}}, two), 9);
  EXPECT_DOUBLE_EQ(LowerBoundSeconds({{3, 0, 0}, {3, 0, 0}, {2, 0, 0}}, two),
                   4);
  EXPECT_DOUBLE_EQ(LowerBoundSeconds({{3, 0, 0}}, {}), 0);
  // Speeds 1 and 3: 12 seconds of work on the slow one take at least 3.
  EXPECT_NEAR(
      LowerBoundSeconds({{6, 0, 0}, {6, 0, 0}}, {kUnit, {1.0 / 3, 0, 0}}), 3,
      1e-9);
  // On its best server.
  EXPECT_DOUBLE_EQ(LowerBoundSeconds({{8, 0, 0}}, {kUnit, {0.25, 0, 0}}), 2);
}

}  // namespace
}  // namespace kronserve::placement
