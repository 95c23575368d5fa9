// What becomes of contributions: PROTOCOL.md 2 and 3.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "server/testing/core_driver.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::IsOk;
using ::testing::AllOf;
using testing::AsyncOptions;
using testing::CoreDriver;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MakeEmptyPiece;
using testing::MakeFactors;
using testing::MakeJob;
using testing::MakeLayer;
using testing::MakePiece;
using testing::MakePushHeader;
using testing::MakeTensor;
using testing::Piece;
using testing::SyncOptions;

constexpr int kInvalidArgument = 3;
constexpr int kNotFound = 5;
constexpr int kFailedPrecondition = 9;

// A [2, 2], G [1, 1].
const v1::LayerSpec kLayer = MakeLayer("fc1", 1, 2);

class RoundsTest : public ::testing::Test {
 protected:
  void Start(int num_ranks, const v1::JobOptions& options) {
    ASSERT_THAT(driver_.Configure(MakeJob({kLayer}, num_ranks, options)),
                IsOk());
  }

  // Pushes A = a I and G = g I from `rows` rows; returns the result for A.
  v1::ContributionResult Push(int rank, int64_t step, float a, float g = 1,
                              int64_t rows = 4) {
    return PushPieces(rank, step, MakeFactors(0, kLayer, a, g, rows));
  }

  v1::ContributionResult PushPieces(int rank, int64_t step,
                                    const std::vector<Piece>& pieces) {
    auto response = driver_.Push(rank, step, pieces);
    EXPECT_THAT(response, IsOk());
    return response.ok() ? response->results(0) : v1::ContributionResult();
  }

  const LayerState& layer() { return *driver_.core.FindLayerState("job", 0); }

  CoreDriver driver_;
};

TEST_F(RoundsTest, WeighsContributionsByTheirRows) {
  Start(2, SyncOptions());
  Push(0, 0, 1, 1, 32);
  Push(1, 0, 6, 1, 8);
  ASSERT_THAT(driver_.Commit(0, 0), IsOk());
  EXPECT_EQ(layer().updates(), 0);  // Rank 1 has not committed.
  ASSERT_THAT(driver_.Commit(1, 0), IsOk());
  // (32 * 1 + 8 * 6) / 40 = 2; without weights it were 3.5.
  EXPECT_THAT(*layer().averages().a, ElementsAre(2, 0, 2));
  EXPECT_THAT(*layer().averages().g, ElementsAre(1));
  EXPECT_EQ(driver_.counters().contributions_merged(), 4);
  EXPECT_EQ(driver_.counters().rounds_merged(), 1);
  EXPECT_EQ(driver_.counters().rounds_partial(), 0);
}

TEST_F(RoundsTest, AveragesOnceHoweverManyContribute) {
  Start(4, SyncOptions());
  for (int step = 0; step < 10; ++step) {
    for (int rank = 0; rank < 4; ++rank) Push(rank, step, 4);
    for (int rank = 0; rank < 4; ++rank) {
      ASSERT_THAT(driver_.Commit(rank, step), IsOk());
    }
    EXPECT_THAT(*layer().averages().a, ElementsAre(4, 0, 4));
  }
  EXPECT_EQ(layer().updates(), 10);
}

TEST_F(RoundsTest, AppliesTheScalesOfTheLayer) {
  v1::LayerSpec scaled = kLayer;
  scaled.set_scale_a(0.5);
  scaled.set_scale_g(4);
  ASSERT_THAT(driver_.Configure(MakeJob({scaled}, 1, SyncOptions())), IsOk());
  Push(0, 0, 6, 2);
  ASSERT_THAT(driver_.Commit(0, 0), IsOk());
  EXPECT_THAT(*layer().averages().a, ElementsAre(3, 0, 3));
  EXPECT_THAT(*layer().averages().g, ElementsAre(8));
}

TEST_F(RoundsTest, RepeatChangesNothing) {
  Start(1, SyncOptions());
  EXPECT_EQ(Push(0, 0, 2).outcome(), v1::CONTRIBUTION_OUTCOME_ACCEPTED);
  EXPECT_EQ(Push(0, 0, 3).outcome(), v1::CONTRIBUTION_OUTCOME_DUPLICATE);
  ASSERT_THAT(driver_.Commit(0, 0), IsOk());
  // The reply was lost and the caller repeats after the round has closed.
  EXPECT_EQ(Push(0, 0, 2).outcome(), v1::CONTRIBUTION_OUTCOME_DUPLICATE);
  ASSERT_THAT(driver_.Commit(0, 0), IsOk());
  EXPECT_THAT(*layer().averages().a, ElementsAre(2, 0, 2));
  EXPECT_EQ(layer().updates(), 1);
  EXPECT_EQ(driver_.counters().contributions_duplicate(), 4);
  EXPECT_EQ(driver_.counters().contributions_merged(), 2);
  EXPECT_EQ(driver_.counters().contributions_late(), 0);
}

TEST_F(RoundsTest, SecondPieceOfOneIdentityInOneCallIsARepeat) {
  Start(1, SyncOptions());
  auto pieces = MakeFactors(0, kLayer, 1, 1, 1);
  pieces.push_back(MakeFactors(0, kLayer, 3, 1, 1)[0]);
  auto response = driver_.Push(0, 0, pieces);
  ASSERT_THAT(response, IsOk());
  EXPECT_EQ(response->results(2).outcome(), v1::CONTRIBUTION_OUTCOME_DUPLICATE);
  ASSERT_THAT(driver_.Commit(0, 0), IsOk());
  EXPECT_THAT(*layer().averages().a, ElementsAre(1, 0, 1));
}

TEST_F(RoundsTest, OneVoidVoidsTheStepForTheJob) {
  Start(2, SyncOptions());
  Push(0, 0, 1);
  Push(1, 0, 1);
  ASSERT_THAT(driver_.Commit(0, 0), IsOk());
  ASSERT_THAT(driver_.Void(1, 0, "overflow"), IsOk());
  EXPECT_EQ(layer().updates(), 0);
  EXPECT_EQ(layer().averages().a, nullptr);
  EXPECT_EQ(layer().rounds().closed_through(), 0);
  EXPECT_EQ(driver_.counters().contributions_void(), 4);
  EXPECT_EQ(driver_.counters().contributions_merged(), 0);
  EXPECT_EQ(driver_.core.Status().staged_bytes(), 0);
}

TEST_F(RoundsTest, ContributionToAVoidStepIsCountedVoidOnce) {
  Start(2, SyncOptions());
  ASSERT_THAT(driver_.Void(1, 0, "overflow"), IsOk());
  EXPECT_EQ(Push(0, 0, 1).outcome(), v1::CONTRIBUTION_OUTCOME_ACCEPTED);
  EXPECT_EQ(Push(0, 0, 1).outcome(), v1::CONTRIBUTION_OUTCOME_DUPLICATE);
  EXPECT_EQ(Push(1, 0, 1).outcome(), v1::CONTRIBUTION_OUTCOME_ACCEPTED);
  EXPECT_EQ(driver_.counters().contributions_void(), 4);
  EXPECT_EQ(driver_.counters().contributions_duplicate(), 2);
  EXPECT_EQ(driver_.core.Status().staged_bytes(), 0);
}

TEST_F(RoundsTest, MergesAPartOfExactlyTheLeastShareAtTheDeadline) {
  Start(4, AsyncOptions(1));
  Push(0, 0, 2);
  Push(1, 0, 4);
  ASSERT_THAT(driver_.Commit(0, 0), IsOk());
  ASSERT_THAT(driver_.Commit(1, 0), IsOk());
  driver_.Advance(absl::Milliseconds(999));
  EXPECT_EQ(layer().updates(), 0);
  driver_.Advance(absl::Milliseconds(1));
  EXPECT_THAT(*layer().averages().a, ElementsAre(3, 0, 3));
  EXPECT_EQ(driver_.counters().rounds_partial(), 1);
  EXPECT_EQ(driver_.counters().rounds_dropped(), 0);
}

TEST_F(RoundsTest, DropsLessThanTheLeastShareAtTheDeadline) {
  Start(4, AsyncOptions(1));
  Push(0, 0, 2);
  Push(1, 0, 4);
  ASSERT_THAT(driver_.Commit(0, 0), IsOk());  // Rank 1 does not commit.
  driver_.Advance(absl::Seconds(1));
  EXPECT_EQ(layer().updates(), 0);
  EXPECT_EQ(layer().rounds().closed_through(), 0);
  EXPECT_EQ(driver_.counters().rounds_dropped(), 1);
  EXPECT_EQ(driver_.counters().contributions_late(), 4);
  EXPECT_THAT(driver_.executor.warnings(),
              ElementsAre(AllOf(HasSubstr("fc1"), HasSubstr("step 0"))));
}

TEST_F(RoundsTest, UncommittedContributionsStayOutOfAPart) {
  Start(3, AsyncOptions(1));
  for (int rank = 0; rank < 3; ++rank) Push(rank, 0, 1.0f + rank);
  ASSERT_THAT(driver_.Commit(0, 0), IsOk());
  ASSERT_THAT(driver_.Commit(1, 0), IsOk());
  driver_.Advance(absl::Seconds(1));
  EXPECT_THAT(*layer().averages().a, ElementsAre(1.5, 0, 1.5));
  EXPECT_EQ(driver_.counters().contributions_merged(), 4);
  EXPECT_EQ(driver_.counters().contributions_late(), 2);
}

TEST_F(RoundsTest, WaitPolicyNeverMergesAPart) {
  v1::JobOptions options = SyncOptions();
  options.set_max_staleness(3);
  Start(2, options);
  Push(0, 0, 1);
  ASSERT_THAT(driver_.Commit(0, 0), IsOk());
  ASSERT_THAT(driver_.Commit(1, 0), IsOk());
  driver_.Advance(absl::Hours(1));
  EXPECT_EQ(layer().updates(), 0);
  EXPECT_EQ(layer().rounds().num_open(), 1);
}

TEST_F(RoundsTest, LateContributionIsToldWhereTheLayerStands) {
  Start(1, SyncOptions());
  Push(0, 5, 1);
  ASSERT_THAT(driver_.Commit(0, 5), IsOk());
  const auto result = Push(0, 4, 1);
  EXPECT_EQ(result.outcome(), v1::CONTRIBUTION_OUTCOME_LATE);
  EXPECT_EQ(result.code(), kFailedPrecondition);
  EXPECT_THAT(result.message(), AllOf(HasSubstr("'fc1'"), HasSubstr("step 4"),
                                      HasSubstr("closed through step 5")));
  EXPECT_EQ(driver_.counters().contributions_late(), 2);
}

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

TEST_F(RoundsTest, ThirdOpenRoundClosesTheOldest) {
  v1::JobOptions options = SyncOptions();
  options.set_max_staleness(3);
  Start(2, options);
  for (int step = 0; step < 3; ++step) Push(0, step, 1);
  EXPECT_EQ(layer().rounds().closed_through(), 0);
  EXPECT_EQ(layer().rounds().num_open(), 2);
  EXPECT_EQ(driver_.counters().rounds_dropped(), 1);
  EXPECT_EQ(driver_.counters().contributions_late(), 2);
  EXPECT_EQ(Push(1, 0, 1).outcome(), v1::CONTRIBUTION_OUTCOME_LATE);
}

TEST_F(RoundsTest, RoundsCloseInStepOrder) {
  Start(2, AsyncOptions(3));
  Push(0, 0, 1);
  Push(0, 1, 5);
  Push(1, 1, 5);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_THAT(driver_.Commit(rank, 0), IsOk());
    ASSERT_THAT(driver_.Commit(rank, 1), IsOk());
  }
  EXPECT_EQ(layer().updates(), 0);  // Step 1 is complete, step 0 is not.
  Push(1, 0, 3);
  EXPECT_EQ(layer().updates(), 2);
  // k = 1: (1 + 3) / 2; k = 2: half of 2 and half of 5.
  EXPECT_THAT(*layer().averages().a, ElementsAre(3.5, 0, 3.5));
}

// A layer placed here after step 5's round went to its lost owner: the steps up
// to the next round must not wait for it.
TEST_F(RoundsTest, NoRoundToWaitForIsNoFactorsAtOnce) {
  v1::JobOptions options = AsyncOptions(2);
  options.set_factor_update_steps(5);
  v1::ConfigureJobRequest request = MakeJob({kLayer}, 2, options);
  request.mutable_config()
      ->mutable_assignment()
      ->mutable_owners(0)
      ->set_from_step(4);
  ASSERT_THAT(driver_.Configure(request), IsOk());
  ASSERT_THAT(driver_.Commit(0, 7), IsOk());
  EXPECT_EQ(layer().rounds().closed_through(), 6);
  const v1::ContributionResult late = Push(1, 5, 1);
  EXPECT_EQ(late.outcome(), v1::CONTRIBUTION_OUTCOME_LATE);
  // An open round that may be merged in part is not passed over: its deadline
  // decides.
  Push(0, 10, 1);
  ASSERT_THAT(driver_.Commit(0, 11), IsOk());
  EXPECT_EQ(layer().rounds().num_open(), 1);
  EXPECT_EQ(layer().rounds().closed_through(), 6);
}

TEST_F(RoundsTest, SynchronousRoundThatARankHasPassedCloses) {
  Start(2, SyncOptions());
  Push(0, 0, 1);  // Rank 1's push was lost.
  ASSERT_THAT(driver_.Commit(0, 0), IsOk());
  ASSERT_THAT(driver_.Commit(1, 0), IsOk());
  Push(0, 1, 5);
  Push(1, 1, 5);
  EXPECT_EQ(layer().rounds().num_open(), 2);
  ASSERT_THAT(driver_.Commit(0, 1), IsOk());
  EXPECT_EQ(layer().rounds().num_open(), 1);
  EXPECT_EQ(driver_.counters().rounds_dropped(), 1);
  ASSERT_THAT(driver_.Commit(1, 1), IsOk());
  EXPECT_EQ(layer().updates(), 1);
  EXPECT_THAT(*layer().averages().a, ElementsAre(5, 0, 5));
}

// Rank 1 took this server for lost and sent nothing. Found by the simulation,
// seed 51 of its first day: step 2 waited for the round of step 0.
TEST_F(RoundsTest, RoundThatWaitsForAllClosesWithTheNextStep) {
  v1::JobOptions options = AsyncOptions(3);
  options.set_round_policy(v1::ROUND_POLICY_WAIT);
  options.set_factor_update_steps(4);
  Start(2, options);
  Push(0, 0, 1);
  ASSERT_THAT(driver_.Commit(0, 0), IsOk());
  EXPECT_EQ(layer().rounds().num_open(), 1);
  ASSERT_THAT(driver_.Commit(1, 1), IsOk());
  EXPECT_EQ(layer().rounds().num_open(), 0);
  EXPECT_EQ(layer().rounds().closed_through(), 0);
  EXPECT_EQ(driver_.counters().rounds_dropped(), 1);
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

TEST_F(RoundsTest, EmptyRoundLeavesAllUntouched) {
  Start(1, SyncOptions());
  Push(0, 0, 2);
  ASSERT_THAT(driver_.Commit(0, 0), IsOk());
  PushPieces(0, 1,
             {MakeEmptyPiece(0, v1::FACTOR_KIND_INPUT),
              MakeEmptyPiece(0, v1::FACTOR_KIND_OUTPUT)});
  ASSERT_THAT(driver_.Commit(0, 1), IsOk());
  EXPECT_THAT(*layer().averages().a, ElementsAre(2, 0, 2));
  EXPECT_EQ(layer().updates(), 1);
  EXPECT_EQ(layer().rounds().closed_through(), 1);
  EXPECT_EQ(driver_.counters().contributions_empty(), 2);
  EXPECT_EQ(driver_.counters().rounds_dropped(), 0);
}

TEST_F(RoundsTest, NoRowsContributeNothingAndDivideNothing) {
  Start(2, SyncOptions());
  const auto refused = Push(0, 0, 1, 1, 0);
  EXPECT_EQ(refused.code(), kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("loss_rows 0"));
  Push(1, 0, 3);
  ASSERT_THAT(driver_.Commit(0, 0), IsOk());
  ASSERT_THAT(driver_.Commit(1, 0), IsOk());
  EXPECT_THAT(*layer().averages().a, ElementsAre(3, 0, 3));
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
  ASSERT_THAT(
      driver_.Configure(MakeJob({kLayer, MakeLayer("fc2", 1, 1)}, 1, options)),
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

TEST_F(RoundsTest, EveryContributionEndsOnce) {
  Start(2, AsyncOptions(1));
  int sent = 0;
  for (int step = 0; step < 12; ++step) {
    for (int rank = 0; rank < 2; ++rank) {
      if (step % 5 == 3 && rank == 1) continue;  // Lost on the way.
      sent += 2;
      if (step % 4 == 1) {
        PushPieces(rank, step,
                   {MakeEmptyPiece(0, v1::FACTOR_KIND_INPUT),
                    MakeEmptyPiece(0, v1::FACTOR_KIND_OUTPUT)});
      } else {
        Push(rank, step, 1, 1, step % 6 == 2 ? 0 : 4);
      }
    }
    for (int rank = 0; rank < 2; ++rank) {
      if (step % 7 == 6) {
        ASSERT_THAT(driver_.Void(rank, step, "skipped"), IsOk());
      } else if (step % 5 != 4 || rank == 0) {
        ASSERT_THAT(driver_.Commit(rank, step), IsOk());
      }
    }
    driver_.Advance(absl::Seconds(1));
  }
  const v1::ServerCounters counters = driver_.counters();
  EXPECT_EQ(counters.contributions_merged() + counters.contributions_empty() +
                counters.contributions_void() +
                counters.contributions_refused() +
                counters.contributions_late(),
            sent);
  EXPECT_GT(counters.contributions_merged(), 0);
  EXPECT_GT(counters.contributions_empty(), 0);
  EXPECT_GT(counters.contributions_void(), 0);
  EXPECT_GT(counters.contributions_refused(), 0);
  EXPECT_GT(counters.contributions_late(), 0);
  EXPECT_EQ(driver_.core.Status().staged_bytes(), 0);
}

}  // namespace
}  // namespace kronserve::server
