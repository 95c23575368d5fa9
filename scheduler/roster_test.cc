#include "scheduler/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"

namespace kronserve::scheduler {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kValidity = absl::Seconds(6);

class RosterTest : public ::testing::Test {
 protected:
  static v1::JoinJobRequest Claim(int rank, uint64_t incarnation,
                                  int world_size = 2) {
    v1::JoinJobRequest request;
    request.set_job("j");
    request.set_run_id("run");
    request.set_rank(rank);
    request.set_world_size(world_size);
    request.set_node(absl::StrCat("n", rank));
    request.set_incarnation(incarnation);
    return request;
  }

  void Form() {
    ASSERT_THAT(roster_.Claim(Claim(0, 10), now_), IsOk());
    ASSERT_THAT(roster_.Claim(Claim(1, 11), now_), IsOk());
    ASSERT_TRUE(roster_.complete());
    roster_.MarkFormed();
  }

  Roster roster_{kValidity};
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(RosterTest, IsCompleteWhenAllRanksClaimed) {
  EXPECT_FALSE(roster_.complete());
  ASSERT_THAT(roster_.Claim(Claim(1, 11), now_), IsOk());
  EXPECT_FALSE(roster_.complete());
  EXPECT_THAT(roster_.Missing(), ElementsAre("rank 0 of 2 has not joined"));
  ASSERT_THAT(roster_.Claim(Claim(0, 10), now_), IsOk());
  EXPECT_TRUE(roster_.complete());
  EXPECT_THAT(roster_.Missing(), IsEmpty());
}

TEST_F(RosterTest, TheWorldListsRanksInOrderFromTheLowestStep) {
  v1::JoinJobRequest second = Claim(1, 11);
  second.set_next_step(40);
  v1::JoinJobRequest first = Claim(0, 10);
  first.set_next_step(42);
  ASSERT_THAT(roster_.Claim(second, now_), IsOk());
  ASSERT_THAT(roster_.Claim(first, now_), IsOk());
  const v1::World world = roster_.MakeWorld(7);
  EXPECT_EQ(world.version(), 7);
  EXPECT_EQ(world.start_step(), 40);
  EXPECT_EQ(world.run_id(), "run");
  ASSERT_EQ(world.ranks_size(), 2);
  EXPECT_EQ(world.ranks(0).incarnation(), 10u);
  EXPECT_EQ(world.ranks(1).rank(), 1);
  EXPECT_EQ(world.ranks(1).node(), "n1");
}

TEST_F(RosterTest, ARankHeldByALiveProcessIsRefused) {
  Form();
  EXPECT_THAT(roster_.Claim(Claim(0, 99), now_ + absl::Seconds(5)),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("rank 0"), HasSubstr("incarnation 10"),
                             HasSubstr("5s ago"))));
  EXPECT_TRUE(roster_.formed());
}

TEST_F(RosterTest, ADeadRankMayBeClaimedAndTheOthersJoinAgain) {
  Form();
  ASSERT_THAT(roster_.Renew(1, 11, now_ + absl::Seconds(4)), IsOk());
  const absl::Time later = now_ + kValidity;
  const int64_t generation = roster_.generation();
  ASSERT_THAT(roster_.Claim(Claim(0, 99), later), IsOk());
  EXPECT_FALSE(roster_.formed());
  EXPECT_GT(roster_.generation(), generation);
  EXPECT_THAT(roster_.Missing(),
              ElementsAre(HasSubstr("rank 1 of 2 has to join again")));
  // Its process still holds rank 1.
  EXPECT_THAT(roster_.Claim(Claim(1, 98), later),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("rank 1")));
  ASSERT_THAT(roster_.Claim(Claim(1, 11), later), IsOk());
  EXPECT_TRUE(roster_.complete());
}

TEST_F(RosterTest, AHigherRestartCountReplacesTheWorldAtOnce) {
  Form();
  v1::JoinJobRequest request = Claim(0, 20, /*world_size=*/3);
  request.set_restart_count(1);
  ASSERT_THAT(roster_.Claim(request, now_), IsOk());
  EXPECT_FALSE(roster_.formed());
  EXPECT_EQ(roster_.world_size(), 3);
  EXPECT_EQ(roster_.restart_count(), 1);
  EXPECT_THAT(roster_.Renew(1, 11, now_),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("restart 1")));
}

TEST_F(RosterTest, AnOlderRestartCountIsAborted) {
  v1::JoinJobRequest request = Claim(0, 10);
  request.set_restart_count(2);
  ASSERT_THAT(roster_.Claim(request, now_), IsOk());
  EXPECT_THAT(roster_.Claim(Claim(1, 11), now_),
              StatusIs(absl::StatusCode::kAborted,
                       AllOf(HasSubstr("at restart 2"),
                             HasSubstr("belongs to restart 0"))));
}

TEST_F(RosterTest, AnotherRunIsRefusedWhileARankLives) {
  Form();
  v1::JoinJobRequest other = Claim(0, 30);
  other.set_run_id("other");
  EXPECT_THAT(roster_.Claim(other, now_ + absl::Seconds(5)),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("run 'run'"), HasSubstr("'other'"))));
  ASSERT_THAT(roster_.Claim(other, now_ + kValidity), IsOk());
  EXPECT_EQ(roster_.run_id(), "other");
  EXPECT_FALSE(roster_.formed());
}

TEST_F(RosterTest, AnotherWorldSizeIsRefusedWhileARankLives) {
  ASSERT_THAT(roster_.Claim(Claim(0, 10), now_), IsOk());
  EXPECT_THAT(roster_.Claim(Claim(1, 11, 4), now_),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("world size 2"), HasSubstr("for 4"))));
  ASSERT_THAT(roster_.Claim(Claim(1, 11, 4), now_ + kValidity), IsOk());
  EXPECT_EQ(roster_.world_size(), 4);
}

TEST_F(RosterTest, WhoFallsSilentWhileGatheringHasToClaimAgain) {
  ASSERT_THAT(roster_.Claim(Claim(0, 10), now_), IsOk());
  roster_.Expire(now_ + kValidity - absl::Milliseconds(1));
  ASSERT_THAT(roster_.Claim(Claim(1, 11), now_ + kValidity), IsOk());
  roster_.Expire(now_ + kValidity);
  EXPECT_FALSE(roster_.complete());
  EXPECT_THAT(roster_.Missing(), ElementsAre(HasSubstr("rank 0 of 2")));
}

TEST_F(RosterTest, RenewKnowsItsRanks) {
  Form();
  EXPECT_THAT(
      roster_.Renew(-1, 10, now_),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rank -1")));
  EXPECT_THAT(roster_.Renew(2, 10, now_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rank 2 is not in a world of 2")));
  EXPECT_THAT(roster_.Renew(0, 11, now_),
              StatusIs(absl::StatusCode::kAborted,
                       HasSubstr("held by incarnation 10")));
  EXPECT_THAT(roster_.Renew(0, 10, now_), IsOk());
}

TEST_F(RosterTest, LeasesEndAndCanBeExtended) {
  Form();
  EXPECT_TRUE(roster_.AnyAlive(now_ + absl::Seconds(5)));
  EXPECT_FALSE(roster_.AnyAlive(now_ + kValidity));
  roster_.ExtendLeases(absl::Seconds(2));
  EXPECT_TRUE(roster_.AnyAlive(now_ + kValidity));
}

TEST_F(RosterTest, ARestoredWorldIsFormedWithFreshLeases) {
  Form();
  Roster restored(kValidity);
  const absl::Time later = now_ + absl::Hours(1);
  restored.Restore(roster_.MakeWorld(3), later);
  EXPECT_TRUE(restored.formed());
  EXPECT_TRUE(restored.AnyAlive(later + absl::Seconds(5)));
  EXPECT_THAT(restored.Renew(1, 11, later), IsOk());
}

// Three ranks that also train as two.
v1::JoinJobRequest Elastic(v1::JoinJobRequest request, int restart_count,
                           int64_t next_step) {
  request.set_world_size(3);
  request.set_min_ranks(2);
  request.set_restart_count(restart_count);
  request.set_next_step(next_step);
  request.set_fresh(next_step == 0);
  return request;
}

TEST_F(RosterTest, ElasticRanksGoOnWithoutOneAfterAValidity) {
  ASSERT_THAT(roster_.Claim(Elastic(Claim(0, 10), 1, 40), now_), IsOk());
  const absl::Time second = now_ + absl::Seconds(1);
  ASSERT_THAT(roster_.Claim(Elastic(Claim(2, 12), 1, 41), second), IsOk());
  EXPECT_THAT(roster_.Missing(),
              ElementsAre(HasSubstr("rank 1 of 3"),
                          HasSubstr("2 are here, 2 are enough")));
  const absl::Time settled = second + kValidity;
  ASSERT_THAT(roster_.Claim(Elastic(Claim(0, 10), 1, 40),
                            settled - absl::Milliseconds(1)),
              IsOk());
  EXPECT_FALSE(roster_.complete());
  ASSERT_THAT(roster_.Claim(Elastic(Claim(2, 12), 1, 41), settled), IsOk());
  ASSERT_TRUE(roster_.complete());
  roster_.MarkFormed();
  const v1::World world = roster_.MakeWorld(2);
  ASSERT_EQ(world.ranks_size(), 2);
  EXPECT_EQ(world.ranks(1).rank(), 1);
  EXPECT_EQ(world.ranks(1).asked_rank(), 2);
  EXPECT_EQ(world.ranks(1).incarnation(), 12u);
  EXPECT_EQ(world.start_step(), 40);
  // Ranks are those of the world now.
  EXPECT_THAT(roster_.Renew(1, 12, settled), IsOk());
  EXPECT_THAT(
      roster_.Renew(2, 12, settled),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a world of 2")));
}

TEST_F(RosterTest, TooFewElasticRanksWait) {
  ASSERT_THAT(roster_.Claim(Elastic(Claim(0, 10), 1, 40), now_), IsOk());
  ASSERT_THAT(
      roster_.Claim(Elastic(Claim(0, 10), 1, 40), now_ + absl::Hours(1)),
      IsOk());
  EXPECT_FALSE(roster_.complete());
  // One that needs all outvotes the others.
  v1::JoinJobRequest all = Elastic(Claim(1, 11), 1, 40);
  all.set_min_ranks(0);
  const absl::Time later = now_ + absl::Hours(1);
  ASSERT_THAT(roster_.Claim(all, later), IsOk());
  ASSERT_THAT(roster_.Claim(all, later + kValidity), IsOk());
  EXPECT_FALSE(roster_.complete());
}

TEST_F(RosterTest, WhoWasLeftOutMakesTheOthersJoinAgain) {
  ASSERT_THAT(roster_.Claim(Elastic(Claim(0, 10), 1, 40), now_), IsOk());
  ASSERT_THAT(roster_.Claim(Elastic(Claim(2, 12), 1, 40), now_), IsOk());
  const absl::Time later = now_ + kValidity;
  ASSERT_THAT(roster_.Claim(Elastic(Claim(0, 10), 1, 40), later), IsOk());
  ASSERT_TRUE(roster_.complete());
  roster_.MarkFormed();
  // The scheduler restarts: the numbers that were asked for last.
  Roster restored(kValidity);
  restored.Restore(roster_.MakeWorld(2), later);
  for (Roster* roster : {&roster_, &restored}) {
    ASSERT_THAT(roster->Claim(Elastic(Claim(1, 31), 1, 0), later), IsOk());
    EXPECT_FALSE(roster->formed());
    EXPECT_THAT(roster->Renew(0, 10, later),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("restart")));
    // They come with the next count, and the newcomer follows.
    ASSERT_THAT(roster->Claim(Elastic(Claim(0, 10), 2, 50), later), IsOk());
    EXPECT_THAT(roster->Claim(Elastic(Claim(1, 31), 1, 0), later),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("restart")));
    ASSERT_THAT(roster->Claim(Elastic(Claim(1, 31), 2, 0), later), IsOk());
    ASSERT_THAT(roster->Claim(Elastic(Claim(2, 12), 2, 50), later), IsOk());
    ASSERT_TRUE(roster->complete());
    // Where a fresh rank would begin does not count.
    EXPECT_EQ(roster->MakeWorld(3).start_step(), 50);
  }
}

TEST_F(RosterTest, RanksWithAStateNameTheCheckpointToRestore) {
  v1::JoinJobRequest fresh = Elastic(Claim(0, 10), 0, 0);
  fresh.set_restore_checkpoint("stale");
  ASSERT_THAT(roster_.Claim(fresh, now_), IsOk());
  EXPECT_EQ(roster_.restore_checkpoint(), "");
  v1::JoinJobRequest resumed = Elastic(Claim(1, 11), 0, 41);
  resumed.set_restore_checkpoint("step40");
  ASSERT_THAT(roster_.Claim(resumed, now_), IsOk());
  EXPECT_EQ(roster_.restore_checkpoint(), "step40");
}

TEST_F(RosterTest, AnElasticWorldMayGrow) {
  Form();
  v1::JoinJobRequest third = Elastic(Claim(2, 12), 0, 0);
  ASSERT_THAT(roster_.Claim(third, now_), IsOk());
  EXPECT_FALSE(roster_.formed());
  EXPECT_EQ(roster_.world_size(), 3);
}

TEST_F(RosterTest, ALongListOfMissingRanksIsCut) {
  ASSERT_THAT(roster_.Claim(Claim(0, 10, 100), now_), IsOk());
  EXPECT_EQ(roster_.Missing().size(), 9u);
  EXPECT_EQ(roster_.Missing().back(), "and 91 more ranks");
}

}  // namespace
}  // namespace kronserve::scheduler
