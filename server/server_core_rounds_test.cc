// What becomes of contributions: PROTOCOL.md 2 and 3.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "server/testing/rounds_fixture.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::IsOk;
using ::testing::AllOf;
using testing::AsyncOptions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kLayer;
using testing::MakeEmptyPiece;
using testing::MakeFactors;
using testing::MakeJob;
using testing::RoundsTest;
using testing::SyncOptions;

constexpr int kInvalidArgument = 3;
constexpr int kFailedPrecondition = 9;

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

TEST_F(RoundsTest, RoundsThatWaitForAllCloseInStepOrder) {
  Start(2, SyncOptions());
  Push(0, 0, 1);
  Push(0, 1, 5);
  Push(1, 1, 5);
  for (int rank : {0, 1}) ASSERT_THAT(driver_.Commit(rank, 0), IsOk());
  EXPECT_EQ(layer().updates(), 0);  // Rank 1's push of step 0 is on its way.
  Push(1, 0, 3);
  EXPECT_EQ(layer().updates(), 1);
  for (int rank : {0, 1}) ASSERT_THAT(driver_.Commit(rank, 1), IsOk());
  EXPECT_EQ(layer().updates(), 2);
  // As above: (1 + 3) / 2, then half of 2 and half of 5.
  EXPECT_THAT(*layer().averages().a, ElementsAre(3.5, 0, 3.5));
}

TEST_F(RoundsTest, RoundOfOneRankWaitsForTheCommitsOfAll) {
  v1::JobOptions options = SyncOptions();
  options.set_factor_source(v1::FACTOR_SOURCE_ONE_RANK);
  Start(3, options);
  ASSERT_THAT(layer().rounds().contributors(), ElementsAre(0));
  Push(0, 0, 2);
  for (int rank : {0, 1}) ASSERT_THAT(driver_.Commit(rank, 0), IsOk());
  EXPECT_EQ(layer().updates(), 0);
  ASSERT_THAT(driver_.Commit(2, 0), IsOk());
  EXPECT_EQ(layer().updates(), 1);
  // Rank 2 passes step 1 without a word: the round does not wait for it.
  Push(0, 1, 6);
  for (int rank : {0, 1}) ASSERT_THAT(driver_.Commit(rank, 1), IsOk());
  ASSERT_THAT(driver_.Commit(2, 2), IsOk());
  EXPECT_EQ(layer().rounds().closed_through(), 1);
  EXPECT_EQ(layer().updates(), 1);
  EXPECT_EQ(driver_.counters().rounds_dropped(), 1);
  EXPECT_THAT(*layer().averages().a, ElementsAre(2, 0, 2));
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

// One rank's probe opens a round and comes to nothing; meanwhile the others
// have ended later steps here. What was passed then is closed with the round,
// or a later step would wait for one that nobody will open any more.
TEST_F(RoundsTest, WhatWasPassedIsClosedWithTheRoundBeforeIt) {
  Start(3, AsyncOptions(2));
  Push(1, 4, 1);
  ASSERT_THAT(driver_.Commit(0, 9), IsOk());
  EXPECT_EQ(layer().rounds().closed_through(), -1);
  driver_.Advance(absl::Seconds(1));  // One of three is too little a part.
  EXPECT_EQ(layer().rounds().num_open(), 0);
  EXPECT_EQ(layer().rounds().closed_through(), 8);
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

TEST_F(RoundsTest, EveryContributionEndsOnce) {
  Start(2, AsyncOptions(1));
  int sent = 0;
  const auto push = [&](int rank, int step) {
    if (step % 5 == 3 && rank == 1) return;  // Lost on the way.
    sent += 2;
    if (step % 4 == 1) {
      PushPieces(rank, step,
                 {MakeEmptyPiece(0, v1::FACTOR_KIND_INPUT),
                  MakeEmptyPiece(0, v1::FACTOR_KIND_OUTPUT)});
    } else {
      Push(rank, step, 1, 1, step % 6 == 2 ? 0 : 4);
    }
  };
  const auto end = [&](int rank, int step) {
    if (step % 7 == 6) {
      ASSERT_THAT(driver_.Void(rank, step, "skipped"), IsOk());
    } else if (step % 5 != 4 || rank == 0) {
      ASSERT_THAT(driver_.Commit(rank, step), IsOk());
    }
  };
  for (int step = 0; step < 12; ++step) {
    for (int rank = 0; rank < 2; ++rank) push(rank, step);
    for (int rank = 0; rank < 2; ++rank) end(rank, step);
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
