// A scheduler on a store that knows less than the servers under it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "scheduler/adoption.h"
#include "scheduler/memory/factory.h"
#include "scheduler/testing/core_harness.h"

namespace kronserve::scheduler {
namespace {

using ::kronserve::scheduler::testing::Claim;
using ::kronserve::scheduler::testing::CoreHarness;
using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::_;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// One lease and one heartbeat.
constexpr absl::Duration kFirstLease = absl::Seconds(6);

// Job j: one rank, four layers on s1 and s2, world 1, epoch 1.
class AdoptionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_THAT(h_.AddServer("s1"), IsOk());
    ASSERT_THAT(h_.AddServer("s2"), IsOk());
    h_.JoinAll("j", 1);
  }

  void Train(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      h_.Advance(absl::Seconds(1));
      const v1::JobStatus job = h_.JobNamed("j");
      (void)h_.Beat("j", 0, ++step_, job.world().version(),
                    job.assignment().epoch());
    }
  }

  // The job's ranks begin again, in a world above the last.
  int64_t Restart(int restart_count) {
    v1::JoinJobRequest claim = Claim("j", 0, 1);
    claim.set_restart_count(restart_count);
    EXPECT_THAT(h_.Join(claim), IsOk());
    const auto ready = h_.Join(claim);
    EXPECT_EQ(ready->state(), v1::JOIN_STATE_READY) << ready->DebugString();
    return ready->world().version();
  }

  absl::Status Finish(int64_t world_version) {
    v1::FinishJobRequest finish;
    finish.set_job("j");
    finish.set_world_version(world_version);
    absl::Status status = h_.core->FinishJob(finish, h_.now).status();
    h_.Pump();
    return status;
  }

  // A scheduler on the store of now, later.
  StateMap Backup() { return *h_.store->Load(); }
  void StartOn(const StateMap& stored) {
    h_.store = memory::CreateStateStore();
    for (const auto& [key, value] : stored) {
      EXPECT_THAT(h_.store->Write({{key, value}}), IsOk());
    }
    h_.configured.clear();
    h_.Start();
  }

  CoreHarness h_;
  int64_t step_ = 0;
};

TEST_F(AdoptionTest, OnAnEmptyStoreARunningJobIsTakenOverAsItIs) {
  Train(3);
  StartOn({});
  h_.Advance(absl::Seconds(1));
  const v1::JobStatus job = h_.JobNamed("j");
  EXPECT_EQ(job.world().version(), 1);
  EXPECT_EQ(job.assignment().epoch(), 1u);
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  EXPECT_THAT(CoreHarness::Owners(job.assignment()),
              ElementsAre("s1", "s2", "s1", "s2"));
  EXPECT_THAT(h_.Beat("j", 0, 4, 1, 1), IsOk());
  Train(10);
  EXPECT_EQ(h_.JobNamed("j").assignment().epoch(), 1u);
  EXPECT_THAT(h_.configured, IsEmpty());  // Nothing is placed twice.
  EXPECT_THAT(h_.dropped, IsEmpty());
  // It is durable again.
  h_.Start();
  EXPECT_EQ(h_.JobNamed("j").assignment().epoch(), 1u);
}

TEST_F(AdoptionTest, ItGoesOnAboveWhatTheServersKnow) {
  EXPECT_EQ(Restart(1), 2);
  EXPECT_EQ(Restart(2), 3);
  StartOn({});
  Train(7);
  EXPECT_GT(h_.core->GetStatus(h_.now).term(), 1u);
  h_.servers["s2"].alive = false;
  Train(8);
  const v1::JobStatus job = h_.JobNamed("j");
  EXPECT_EQ(job.world().version(), 3);
  EXPECT_EQ(job.assignment().epoch(), 4u);
  EXPECT_THAT(CoreHarness::Owners(job.assignment()), Each("s1"));
  EXPECT_EQ(Restart(3), 4);
}

TEST_F(AdoptionTest, AHeartbeatOfAnUnknownJobMayStillBecomeKnown) {
  StartOn({});
  EXPECT_THAT(h_.Beat("j", 0, 4, 1, 1),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("job 'j' is not known yet")));
  EXPECT_THAT(Finish(1), StatusIs(absl::StatusCode::kUnavailable, _));
  h_.Advance(absl::Seconds(1));
  EXPECT_THAT(h_.Beat("j", 0, 4, 1, 1), IsOk());
  EXPECT_THAT(Finish(1), IsOk());
  EXPECT_THAT(h_.servers["s1"].held, IsEmpty());
}

TEST_F(AdoptionTest, AfterTheFirstLeaseAnUnknownJobIsNotFound) {
  h_.servers.clear();
  StartOn({});
  h_.Advance(kFirstLease);
  EXPECT_THAT(h_.Beat("j", 0, 4, 1, 1),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'j'")));
  EXPECT_THAT(Finish(1), IsOk());
}

TEST_F(AdoptionTest, NothingIsPlacedBeforeTheFirstLeaseHasPassed) {
  StartOn({});
  h_.servers["s2"].alive = false;
  h_.Advance(absl::Seconds(1));
  ASSERT_THAT(h_.Join(Claim("k", 0, 1)), IsOk());
  // s2 is known from what s1 told.
  EXPECT_THAT(h_.Join(Claim("k", 0, 1))->waiting_for(),
              Contains(HasSubstr("server 's2' has not registered again")));
  h_.servers["s2"].alive = true;
  h_.Advance(absl::Seconds(1));
  // Both are back; a third may hold another job.
  EXPECT_THAT(h_.Join(Claim("k", 0, 1))->waiting_for(),
              Contains(HasSubstr("the store knows less than the servers")));
  h_.Advance(absl::Seconds(4));
  ASSERT_THAT(h_.Join(Claim("k", 0, 1)), IsOk());
  EXPECT_EQ(h_.Join(Claim("k", 0, 1))->state(), v1::JOIN_STATE_READY);
}

TEST_F(AdoptionTest, AnOwnerThatDoesNotComeBackIsReplacedAfterOneLease) {
  StartOn({});
  h_.servers["s2"].alive = false;
  Train(5);
  EXPECT_EQ(h_.JobNamed("j").assignment().epoch(), 1u);
  Train(4);
  EXPECT_EQ(h_.JobNamed("j").assignment().epoch(), 2u);
  EXPECT_THAT(CoreHarness::Owners(h_.JobNamed("j").assignment()), Each("s1"));
}

TEST_F(AdoptionTest, TheRanksGetOneFreshLease) {
  StartOn({});
  h_.Advance(absl::Seconds(1));
  h_.Advance(kFirstLease - absl::Milliseconds(200));
  EXPECT_EQ(h_.JobNamed("j").state(), v1::JOB_STATE_RUNNING);
  h_.Advance(absl::Seconds(1));
  EXPECT_EQ(h_.JobNamed("j").state(), v1::JOB_STATE_IDLE);
}

TEST_F(AdoptionTest, OfTwoServersTheOneThatKnowsMoreIsBelieved) {
  const v1::JobHeld held = h_.servers["s1"].held.at("j");
  const v1::JobConfig config = h_.servers["s1"].configs.at("j");
  EXPECT_EQ(Restart(1), 2);
  // s1 missed that.
  h_.servers["s1"].held["j"] = held;
  h_.servers["s1"].configs["j"] = config;
  for (const bool s1_first : {true, false}) {
    StartOn({});
    ASSERT_THAT(h_.Register(s1_first ? "s1" : "s2"), IsOk());
    EXPECT_EQ(h_.JobNamed("j").world().version(), s1_first ? 1 : 2);
    ASSERT_THAT(h_.Register(s1_first ? "s2" : "s1"), IsOk());
    EXPECT_EQ(h_.JobNamed("j").world().version(), 2);
    EXPECT_EQ(h_.JobNamed("j").assignment().epoch(), 2u);
    h_.servers["s1"].held["j"] = held;
    h_.servers["s1"].configs["j"] = config;
  }
  Train(4);
  EXPECT_EQ(h_.servers["s1"].held.at("j").epoch(), 2u);
}

TEST_F(AdoptionTest, AWeekOldStoreTakesOverTheLaterWorld) {
  const StateMap week_old = Backup();
  Train(2);
  EXPECT_EQ(Restart(1), 2);
  ASSERT_THAT(h_.AddServer("s3"), IsOk());
  EXPECT_EQ(Restart(2), 3);
  const auto owners = CoreHarness::Owners(h_.JobNamed("j").assignment());
  StartOn(week_old);
  EXPECT_EQ(h_.JobNamed("j").world().version(), 1);
  h_.Advance(absl::Seconds(1));
  EXPECT_EQ(h_.JobNamed("j").world().version(), 3);
  EXPECT_EQ(h_.JobNamed("j").assignment().epoch(), 3u);
  EXPECT_EQ(CoreHarness::Owners(h_.JobNamed("j").assignment()), owners);
  Train(8);
  EXPECT_EQ(h_.JobNamed("j").assignment().epoch(), 3u);
  EXPECT_THAT(h_.configured, IsEmpty());
  // The rank of the old world is gone, that of the new one lives.
  EXPECT_THAT(h_.Beat("j", 0, 40, 1, 1),
              StatusIs(absl::StatusCode::kAborted, _));
}

TEST_F(AdoptionTest, AJobThatIsFinishedInTheStoreAndBegunAgainIsTakenOver) {
  h_.servers["s2"].alive = false;  // So that the order to drop it is stored.
  ASSERT_THAT(Finish(1), IsOk());
  const StateMap week_old = Backup();
  ASSERT_EQ(week_old.count("drop/j"), 1u);
  h_.servers["s2"].alive = true;
  h_.Advance(absl::Seconds(3));
  const int64_t world = h_.JoinAll("j", 1).world().version();
  EXPECT_EQ(world, 2);
  StartOn(week_old);
  Train(8);
  EXPECT_EQ(h_.JobNamed("j").world().version(), 2);
  EXPECT_EQ(h_.JobNamed("j").state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(h_.servers["s2"].held.at("j").world_version(), 2);
}

TEST_F(AdoptionTest, AJobThatIsFinishedInTheStoreIsNotBegunByALateServer) {
  h_.servers["s2"].alive = false;
  ASSERT_THAT(Finish(1), IsOk());
  h_.Start();
  h_.servers["s2"].alive = true;
  h_.Advance(absl::Seconds(3));
  EXPECT_EQ(h_.JobNamed("j").state(), v1::JOB_STATE_FINISHED);
  EXPECT_THAT(h_.servers["s2"].held, IsEmpty());
}

TEST_F(AdoptionTest, AWorldThatCouldNotStartIsNotBegunByALateServer) {
  v1::JoinJobRequest claim = Claim("j", 0, 1);
  claim.set_restart_count(1);
  h_.servers["s2"].refusal = absl::ResourceExhaustedError("full");
  ASSERT_THAT(h_.Join(claim), IsOk());
  const v1::JobConfig failed = h_.servers["s1"].configs.at("j");
  ASSERT_EQ(failed.world().version(), 2);
  // The order to drop it is lost with the connection, and it registers anew.
  v1::JobHeld& held = h_.servers["s1"].held["j"];
  held.set_job("j");
  held.set_world_version(2);
  held.set_epoch(failed.assignment().epoch());
  ASSERT_THAT(h_.Register("s1"), IsOk());
  EXPECT_THAT(h_.log, Not(Contains(HasSubstr("is taken over"))));
  EXPECT_THAT(h_.servers["s1"].held, IsEmpty());
  h_.servers["s2"].refusal = absl::OkStatus();
  claim.set_restart_count(2);
  ASSERT_THAT(h_.Join(claim), IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto ready, h_.Join(claim));
  EXPECT_EQ(ready.state(), v1::JOIN_STATE_READY);
  EXPECT_EQ(ready.world().version(), 3);
}

TEST_F(AdoptionTest, AJobThatHasFinishedSinceHasNoLivingRankAndExpires) {
  const StateMap week_old = Backup();
  ASSERT_THAT(Finish(1), IsOk());
  h_.Advance(absl::Seconds(2));
  StartOn(week_old);
  h_.Advance(absl::Seconds(8));
  EXPECT_EQ(h_.JobNamed("j").state(), v1::JOB_STATE_IDLE);
  h_.Advance(absl::Seconds(2));
  EXPECT_EQ(h_.JobNamed("j").assignment().epoch(), 1u);
}

TEST_F(AdoptionTest, RanksThatJoinAnewGetTheStateWhereItIs) {
  Train(2);
  StartOn({});
  // The ranks are here before the servers.
  v1::JoinJobRequest claim = Claim("j", 0, 1);
  claim.set_restart_count(1);
  ASSERT_THAT(h_.Join(claim), IsOk());
  h_.Advance(absl::Seconds(7));
  ASSERT_THAT(h_.Join(claim), IsOk());
  const auto ready = h_.Join(claim);
  ASSERT_EQ(ready->state(), v1::JOIN_STATE_READY) << ready->DebugString();
  EXPECT_EQ(ready->world().version(), 2);
  EXPECT_EQ(ready->assignment().epoch(), 2u);
  EXPECT_THAT(CoreHarness::Owners(ready->assignment()),
              ElementsAre("s1", "s2", "s1", "s2"));
}

TEST_F(AdoptionTest, RanksWithAnotherPlanAreToldNothingOfTheOldJob) {
  StartOn({});
  ASSERT_THAT(h_.Join(Claim("j", 0, 1, /*num_layers=*/2)), IsOk());
  h_.Advance(absl::Seconds(7));
  EXPECT_THAT(h_.log, Contains(HasSubstr("join with another plan")));
  const auto ready = h_.JoinAll("j", 1, /*num_layers=*/2);
  EXPECT_EQ(ready.world().version(), 2);
}

TEST_F(AdoptionTest, AServerThatRestartedMeanwhileHoldsNothing) {
  StartOn({});
  h_.servers["s2"].incarnation = 2;
  h_.servers["s2"].held.clear();
  ASSERT_THAT(h_.Register("s2"), IsOk());
  Train(8);
  const v1::Assignment assignment = h_.JobNamed("j").assignment();
  EXPECT_EQ(assignment.epoch(), 2u);
  EXPECT_EQ(assignment.owners(0).from_step(), 0);
  EXPECT_GT(assignment.owners(1).from_step(), 0);
  EXPECT_EQ(h_.servers["s2"].held.at("j").epoch(), 2u);
}

TEST_F(AdoptionTest, AHeldJobThatContradictsItselfIsLeftAlone) {
  h_.servers["s1"].held.at("j").set_epoch(9);
  h_.servers["s2"].alive = false;
  StartOn({});
  h_.Advance(absl::Seconds(1));
  EXPECT_EQ(h_.JobNamed("j").job(), "");
  EXPECT_THAT(h_.log, Contains(HasSubstr("it holds world 1, epoch 9")));
}

// A server's word is not our own record.
TEST_F(AdoptionTest, AConfigThatCannotBeIsLeftAlone) {
  const v1::JobConfig good = h_.servers["s1"].configs.at("j");
  const std::vector<std::function<void(v1::JobConfig*)>> faults = {
      [](auto* c) {
        c->mutable_world()->mutable_ranks(0)->set_asked_rank(2147483647);
      },
      [](auto* c) { c->mutable_world()->mutable_ranks(0)->set_asked_rank(-1); },
      [](auto* c) { c->mutable_world()->set_start_step(-1); },
      [](auto* c) {  // As our own record of a job without a world.
        c->clear_world();
        c->clear_assignment();
      },
      [](auto* c) { c->mutable_assignment()->mutable_owners(1)->set_layer(0); },
      [](auto* c) {
        c->mutable_assignment()->mutable_owners(1)->set_server("unnamed");
      },
      [](auto* c) {
        c->mutable_assignment()->mutable_owners(1)->set_source("unnamed");
      },
      [](auto* c) { c->mutable_layers(0)->set_d_in(-5); }};
  h_.servers["s2"].alive = false;
  for (const auto& fault : faults) {
    v1::JobConfig& config = h_.servers["s1"].configs.at("j");
    config = good;
    fault(&config);
    h_.log.clear();
    StartOn({});
    h_.Advance(absl::Seconds(1));
    EXPECT_EQ(h_.JobNamed("j").job(), "") << config.ShortDebugString();
    EXPECT_THAT(h_.log, Contains(HasSubstr("cannot be taken over")));
  }
}

TEST(KnowsMoreTest, ComparesWorldThenEpoch) {
  v1::JobHeld held;
  held.set_world_version(2);
  held.set_epoch(5);
  EXPECT_FALSE(KnowsMore(held, nullptr));  // It brings no config.
  held.mutable_config();
  EXPECT_TRUE(KnowsMore(held, nullptr));
  Job job("j", absl::Seconds(6));
  EXPECT_TRUE(KnowsMore(held, &job));  // Its ranks gather only.
  job.config.mutable_world()->set_version(2);
  job.config.mutable_assignment()->set_epoch(5);
  EXPECT_FALSE(KnowsMore(held, &job));
  job.config.mutable_assignment()->set_epoch(4);
  EXPECT_TRUE(KnowsMore(held, &job));
  job.finished = true;
  EXPECT_FALSE(KnowsMore(held, &job));
  job.config.mutable_world()->set_version(1);
  EXPECT_TRUE(KnowsMore(held, &job));
}

}  // namespace
}  // namespace kronserve::scheduler
