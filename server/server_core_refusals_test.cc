// Contributions that are refused, and what that leaves untouched:
// PROTOCOL.md 3.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "common/testing/status_matchers.h"
#include "server/testing/rounds_fixture.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::SampleLayer;
using ::testing::AllOf;
using testing::CoreDriver;
using ::testing::HasSubstr;
using testing::kLayer;
using testing::MakeFactors;
using testing::MakeJob;
using testing::MakePiece;
using testing::MakePushHeader;
using testing::MakeTensor;
using testing::Piece;
using testing::RoundsTest;
using testing::SyncOptions;

constexpr int kInvalidArgument = 3;
constexpr int kNotFound = 5;

TEST_F(RoundsTest, ContributorsMustAgreeOnDampingAndDecay) {
  Start(3, SyncOptions());
  Push(0, 0, 1);
  const auto pieces = MakeFactors(0, kLayer, 1, 1, 4);
  auto header = MakePushHeader(1, 0, pieces);
  header.set_damping(0.25);
  auto response = driver_.Push(header, pieces);
  ASSERT_THAT(response, IsOk());
  EXPECT_EQ(response->results(0).outcome(), v1::CONTRIBUTION_OUTCOME_REFUSED);
  EXPECT_EQ(response->results(0).code(), kInvalidArgument);
  EXPECT_THAT(response->results(0).message(),
              AllOf(HasSubstr("damping 0.25"), HasSubstr("with 0 of")));
  header = MakePushHeader(2, 0, pieces);
  header.set_factor_decay(0.75);
  response = driver_.Push(header, pieces);
  ASSERT_THAT(response, IsOk());
  EXPECT_THAT(response->results(0).message(),
              AllOf(HasSubstr("factor_decay 0.75"), HasSubstr("with 0.5 of")));
  // Both refused ranks count as empty: the round is complete.
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_THAT(driver_.Commit(rank, 0), IsOk());
  }
  EXPECT_EQ(layer().updates(), 1);
  EXPECT_EQ(driver_.counters().contributions_refused(), 4);
}

// One bad entry, in A and then in G: the answer must be that of a run in which
// the step never happened.
TEST_F(RoundsTest, NonFiniteFactorLeavesTheAverageUntouched) {
  for (const v1::FactorKind bad_kind :
       {v1::FACTOR_KIND_INPUT, v1::FACTOR_KIND_OUTPUT}) {
    CoreDriver clean, hit;
    for (CoreDriver* driver : {&clean, &hit}) {
      ASSERT_THAT(driver->Configure(MakeJob({kLayer}, 1, SyncOptions())),
                  IsOk());
      ASSERT_THAT(driver->Push(0, 9, MakeFactors(0, kLayer, 0.7f, 0.3f, 3)),
                  IsOk());
      ASSERT_THAT(driver->Commit(0, 9), IsOk());
    }
    auto pieces = MakeFactors(0, kLayer, 1, 1, 4);
    Piece& bad = pieces[bad_kind == v1::FACTOR_KIND_INPUT ? 0 : 1];
    std::vector<float> values = *bad.tensor;
    values[0] = std::numeric_limits<float>::infinity();
    bad = MakePiece(0, bad_kind, bad.item.dim(), MakeTensor(values), 4);
    auto response = hit.Push(0, 10, pieces);
    ASSERT_THAT(response, IsOk());
    const auto& result =
        response->results(bad_kind == v1::FACTOR_KIND_INPUT ? 0 : 1);
    EXPECT_EQ(result.outcome(), v1::CONTRIBUTION_OUTCOME_REFUSED);
    EXPECT_EQ(result.code(), kInvalidArgument);
    EXPECT_THAT(result.message(),
                AllOf(HasSubstr("'job'"), HasSubstr("'fc1'"),
                      HasSubstr(bad_kind == v1::FACTOR_KIND_INPUT ? "factor A"
                                                                  : "factor G"),
                      HasSubstr("step 10"), HasSubstr("1 of")));
    ASSERT_THAT(hit.Commit(0, 10), IsOk());
    for (CoreDriver* driver : {&clean, &hit}) {
      ASSERT_THAT(driver->Push(0, 11, MakeFactors(0, kLayer, 1.3f, 2.1f, 5)),
                  IsOk());
      ASSERT_THAT(driver->Commit(0, 11), IsOk());
    }
    const LayerState& expected = *clean.core.FindLayerState("job", 0);
    const LayerState& found = *hit.core.FindLayerState("job", 0);
    EXPECT_EQ(*found.averages().a, *expected.averages().a);
    EXPECT_EQ(*found.averages().g, *expected.averages().g);
    EXPECT_EQ(found.updates(), 2);
    // The good half of the pair is empty, the bad one refused.
    EXPECT_EQ(hit.counters().contributions_refused(), 1);
    EXPECT_EQ(hit.counters().contributions_empty(), 1);
  }
}

TEST_F(RoundsTest, RefusedIdentityIsAnsweredTheSameAgain) {
  Start(1, SyncOptions());
  auto pieces = MakeFactors(0, kLayer, 1, 1, 4);
  pieces[0].item.set_checksum(1);
  const auto first = PushPieces(0, 0, pieces);
  EXPECT_THAT(first.message(), HasSubstr("checksum"));
  const auto second = Push(0, 0, 1);
  EXPECT_EQ(second.outcome(), v1::CONTRIBUTION_OUTCOME_REFUSED);
  EXPECT_EQ(second.message(), first.message());
  EXPECT_EQ(driver_.counters().contributions_refused(), 1);
}

TEST_F(RoundsTest, SumThatOverflowsIsDroppedAndCountedRefused) {
  v1::LayerSpec scaled = kLayer;
  scaled.set_scale_a(1e30);
  ASSERT_THAT(driver_.Configure(MakeJob({scaled}, 1, SyncOptions())), IsOk());
  Push(0, 0, 1e20f);
  ASSERT_THAT(driver_.Commit(0, 0), IsOk());
  EXPECT_EQ(layer().updates(), 0);
  EXPECT_EQ(layer().averages().a, nullptr);
  EXPECT_EQ(driver_.counters().contributions_refused(), 2);
  EXPECT_EQ(driver_.counters().contributions_merged(), 0);
  EXPECT_EQ(driver_.counters().rounds_dropped(), 1);
}

TEST_F(RoundsTest, BadItemsAreRefusedByThemselves) {
  v1::JobOptions options = SyncOptions();
  options.set_factor_update_steps(2);
  ASSERT_THAT(driver_.Configure(
                  MakeJob({kLayer, SampleLayer("fc2", 1, 1)}, 1, options)),
              IsOk());
  const auto good = MakeFactors(0, kLayer, 1, 1, 1);
  Piece unknown = good[0];
  unknown.item.set_layer(99);
  Piece wrong_side = good[0];
  wrong_side.item.set_layer(1);
  Piece hostile = good[1];
  hostile.item.set_layer(1);
  hostile.item.set_dim(std::numeric_limits<int64_t>::max());
  Piece no_kind = good[0];
  no_kind.item.set_kind(v1::FACTOR_KIND_UNSPECIFIED);
  auto response = driver_.Push(
      0, 2, {good[0], unknown, wrong_side, hostile, no_kind, good[1]});
  ASSERT_THAT(response, IsOk());
  EXPECT_EQ(response->epoch(), 1);
  EXPECT_EQ(response->results(0).outcome(), v1::CONTRIBUTION_OUTCOME_ACCEPTED);
  EXPECT_EQ(response->results(1).code(), kNotFound);
  EXPECT_THAT(response->results(1).message(),
              AllOf(HasSubstr("layer 99"), HasSubstr("2 layers")));
  EXPECT_EQ(response->results(2).code(), kInvalidArgument);
  EXPECT_THAT(response->results(2).message(),
              HasSubstr("factor A, step 2 is 2x2, registered 1x1"));
  EXPECT_EQ(response->results(3).code(), kInvalidArgument);
  EXPECT_EQ(response->results(4).code(), kInvalidArgument);
  EXPECT_EQ(response->results(5).outcome(), v1::CONTRIBUTION_OUTCOME_ACCEPTED);
  // Steps without a round, and ranks that nobody waits for.
  response = driver_.Push(0, 3, good);
  ASSERT_THAT(response, IsOk());
  EXPECT_THAT(response->results(0).message(), HasSubstr("every 2 steps"));
  EXPECT_EQ(driver_.counters().contributions_refused(), 6);
}

TEST_F(RoundsTest, RankThatIsNoContributorIsRefused) {
  v1::JobOptions options = SyncOptions();
  options.set_factor_source(v1::FACTOR_SOURCE_ONE_RANK);
  Start(2, options);
  const int delegate = layer().rounds().contributors()[0];
  const auto result = Push(1 - delegate, 0, 1);
  EXPECT_EQ(result.outcome(), v1::CONTRIBUTION_OUTCOME_REFUSED);
  EXPECT_EQ(result.code(), kInvalidArgument);
  EXPECT_THAT(result.message(), HasSubstr("no contributor"));
  Push(delegate, 0, 1);
  ASSERT_THAT(driver_.Commit(0, 0), IsOk());
  ASSERT_THAT(driver_.Commit(1, 0), IsOk());
  EXPECT_EQ(layer().updates(), 1);
}

}  // namespace
}  // namespace kronserve::server
