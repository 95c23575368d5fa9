// Servers that come, fall silent, die and return; and restarts of the
// scheduler itself.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "common/testing/status_matchers.h"
#include "scheduler/scheduler_core.h"
#include "scheduler/testing/core_harness.h"

namespace kronserve::scheduler {
namespace {

using ::kronserve::scheduler::testing::Claim;
using ::kronserve::scheduler::testing::CoreHarness;
using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

v1::ServerStatus ServerNamed(const CoreHarness& h, const std::string& name) {
  const v1::GetStatusResponse status = h.core->GetStatus(h.now);
  for (const v1::ServerStatus& server : status.servers()) {
    if (server.name() == name) return server;
  }
  return v1::ServerStatus();
}

// Two servers, one job of four layers on one rank; ready at epoch 1.
class TwoServersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_THAT(h_.AddServer("s1"), IsOk());
    ASSERT_THAT(h_.AddServer("s2"), IsOk());
    const v1::JoinJobResponse ready = h_.JoinAll("j", 1);
    ASSERT_THAT(CoreHarness::Owners(ready.assignment()),
                ElementsAre("s1", "s2", "s1", "s2"));
  }

  // Rank 0 trains on, one step and one heartbeat a second.
  void Train(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      h_.Advance(absl::Seconds(1));
      ASSERT_THAT(h_.Beat("j", 0, ++step_, world_, 1), IsOk());
    }
  }

  v1::Assignment Assignment() { return h_.JobNamed("j").assignment(); }

  CoreHarness h_;
  int64_t step_ = 0;
  int64_t world_ = 1;
};

TEST(RegisterServerTest, NamesEveryFault) {
  CoreHarness h;
  v1::RegisterServerRequest request;
  request.set_address("nowhere");
  request.mutable_cost()->set_seconds(-1);
  EXPECT_THAT(h.core->RegisterServer(request, h.now),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("name has 0 bytes"),
                             HasSubstr("address 'nowhere' is not host:port"),
                             HasSubstr("incarnation is 0"),
                             HasSubstr("memory_bytes is 0"),
                             HasSubstr("cost curve (-1, 0, 0)"))));
}

TEST(RegisterServerTest, ALiveNameAtAnotherAddressIsRefused) {
  CoreHarness h;
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  ASSERT_THAT(h.AddServer("s2"), IsOk());  // Lives on, so that time counts.
  h.servers["s1"].address = "elsewhere:7000";
  h.servers["s1"].incarnation = 2;
  EXPECT_THAT(h.Register("s1"),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("'s1'"), HasSubstr("s1:7000"))));
  // Its lease ends, and the name is free.
  h.servers["s1"].alive = false;
  h.Advance(absl::Seconds(7));
  EXPECT_THAT(h.Register("s1"), IsOk());
}

TEST(ServerHeartbeatTest, AnswersWithItsErrors) {
  CoreHarness h;
  v1::ServerHeartbeatRequest beat;
  beat.set_name("s1");
  beat.set_incarnation(1);
  EXPECT_THAT(h.core->ServerHeartbeat(beat, h.now),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("register")));
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  EXPECT_EQ(h.core->ServerHeartbeat(beat, h.now)->term(), 1u);
  beat.set_incarnation(2);
  EXPECT_THAT(
      h.core->ServerHeartbeat(beat, h.now),
      StatusIs(absl::StatusCode::kAborted, HasSubstr("held by incarnation 1")));
}

TEST(MembershipTest, GoesFromAliveToSuspectToDead) {
  CoreHarness h;
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  ASSERT_THAT(h.AddServer("s2"), IsOk());  // Lives on, so that time counts.
  EXPECT_EQ(ServerNamed(h, "s1").state(), v1::MEMBER_STATE_ALIVE);
  h.servers["s1"].alive = false;
  h.Advance(absl::Milliseconds(2500));
  EXPECT_EQ(ServerNamed(h, "s1").state(), v1::MEMBER_STATE_ALIVE);
  h.Advance(absl::Milliseconds(100));
  EXPECT_EQ(ServerNamed(h, "s1").state(), v1::MEMBER_STATE_SUSPECT);
  // Lease 5 s and one heartbeat.
  h.Advance(absl::Milliseconds(3300));
  EXPECT_EQ(ServerNamed(h, "s1").state(), v1::MEMBER_STATE_SUSPECT);
  h.Advance(absl::Milliseconds(100));
  EXPECT_EQ(ServerNamed(h, "s1").state(), v1::MEMBER_STATE_DEAD);
  h.Advance(absl::Hours(1) + absl::Seconds(1));
  ASSERT_EQ(h.core->GetStatus(h.now).servers_size(), 1);
  EXPECT_EQ(h.core->GetStatus(h.now).servers(0).name(), "s2");
}

TEST_F(TwoServersTest, ALostServersLayersMoveAndNoOthers) {
  Train(20);
  h_.servers["s2"].alive = false;
  Train(7);
  const v1::Assignment moved = Assignment();
  EXPECT_EQ(moved.epoch(), 2u);
  EXPECT_THAT(CoreHarness::Owners(moved), Each("s1"));
  // s2 was last heard in second 20 and declared dead in second 26, when the
  // newest reported step was 25.
  EXPECT_EQ(moved.owners(1).from_step(), 25 + kStepMargin);
  EXPECT_EQ(moved.owners(0).from_step(), 0);
  ASSERT_EQ(moved.servers_size(), 1);
  EXPECT_EQ(h_.servers["s1"].held.at("j").epoch(), 2u);
  EXPECT_THAT(h_.log, Contains(AllOf(HasSubstr("server 's2' is dead: 2 layers "
                                               "of job 'j' are placed anew"))));
  EXPECT_THAT(h_.log,
              Contains(HasSubstr(
                  "layer 'fc1' began on server 's1' in epoch 2 with no "
                  "state: what was accepted for steps 0 to 26 is lost")));
  ASSERT_EQ(h_.JobNamed("j").recoveries_size(), 4);
  EXPECT_EQ(h_.JobNamed("j").recoveries(1).epoch(), 2u);
  EXPECT_EQ(h_.JobNamed("j").recoveries(1).from_step(), 27);
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto beat, h_.Beat("j", 0, 28, 1, 1));
  EXPECT_EQ(beat.assignment().epoch(), 2u);
}

TEST_F(TwoServersTest, ANewAssignmentIsHandedOutOnlyWhenStored) {
  h_.hold_writes = true;
  h_.servers["s2"].alive = false;
  Train(7);
  EXPECT_EQ(Assignment().epoch(), 2u);
  EXPECT_FALSE(h_.Beat("j", 0, 8, 1, 1)->has_assignment());
  EXPECT_EQ(h_.servers["s1"].held.at("j").epoch(), 1u);
  ASSERT_THAT(h_.held_writes, SizeIs(1));
  h_.hold_writes = false;
  h_.core->EffectDone(h_.held_writes[0].ticket, absl::OkStatus(), h_.now);
  h_.Pump();
  EXPECT_TRUE(h_.Beat("j", 0, 8, 1, 1)->has_assignment());
  EXPECT_EQ(h_.servers["s1"].held.at("j").epoch(), 2u);
}

TEST_F(TwoServersTest, WithoutAServerLayersHaveNoOwnerUntilOneComes) {
  h_.servers["s1"].alive = h_.servers["s2"].alive = false;
  Train(8);
  EXPECT_THAT(CoreHarness::Owners(Assignment()), Each(""));
  EXPECT_EQ(Assignment().servers_size(), 0);
  const uint64_t epoch = Assignment().epoch();
  Train(5);
  EXPECT_EQ(Assignment().epoch(), epoch);  // Nothing new to say.
  ASSERT_THAT(h_.AddServer("s3"), IsOk());
  EXPECT_THAT(CoreHarness::Owners(Assignment()), Each("s3"));
  EXPECT_GT(Assignment().epoch(), epoch);
  EXPECT_EQ(Assignment().owners(0).from_step(), 13 + kStepMargin);
}

TEST_F(TwoServersTest, ARestartedServerGetsItsLayersAnew) {
  Train(10);
  h_.servers["s2"].incarnation = 2;  // Same address: the old process is gone.
  h_.servers["s2"].held.clear();
  ASSERT_THAT(h_.Register("s2"), IsOk());
  EXPECT_EQ(Assignment().epoch(), 2u);
  EXPECT_THAT(CoreHarness::Owners(Assignment()),
              ElementsAre("s1", "s2", "s1", "s2"));
  EXPECT_EQ(Assignment().owners(0).from_step(), 0);
  EXPECT_EQ(Assignment().owners(1).from_step(), 10 + kStepMargin);
  EXPECT_EQ(Assignment().servers(1).incarnation(), 2u);
  EXPECT_EQ(h_.servers["s2"].held.at("j").epoch(), 2u);
}

TEST_F(TwoServersTest, AServerBehindACutGivesItsLayersUpWhenItIsBack) {
  h_.servers["s2"].alive = false;
  Train(8);
  ASSERT_EQ(Assignment().epoch(), 2u);
  EXPECT_EQ(h_.servers["s2"].held.at("j").epoch(), 1u);
  EXPECT_THAT(h_.servers["s2"].states.at("j"), SizeIs(2));
  h_.servers["s2"].alive = true;  // Same process, same state.
  h_.servers["s1"].hold_transfers = true;
  h_.configured.clear();
  Train(3);
  EXPECT_EQ(ServerNamed(h_, "s2").state(), v1::MEMBER_STATE_ALIVE);
  // First it gives up what it had, and only then gets its share anew.
  ASSERT_THAT(h_.configured, SizeIs(3));
  EXPECT_EQ(h_.configured[0].server.name(), "s2");
  EXPECT_EQ(h_.configured[0].request.config().assignment().epoch(), 2u);
  EXPECT_EQ(h_.configured[1].request.config().assignment().epoch(), 3u);
  EXPECT_THAT(h_.servers["s2"].states.at("j"), IsEmpty());
  EXPECT_EQ(h_.servers["s2"].held.at("j").awaited_size(), 2);
  h_.servers["s1"].hold_transfers = false;
  Train(5);
  EXPECT_THAT(h_.JobNamed("j").moving(), IsEmpty());
  EXPECT_EQ(h_.servers["s2"].states.at("j").size(), 2u);
}

TEST_F(TwoServersTest, BusyIsNotDead) {
  // Heartbeats that come late, but within the lease, expel nobody.
  for (int i = 0; i < 5; ++i) {
    h_.servers["s2"].alive = false;
    Train(5);
    h_.servers["s2"].alive = true;
    Train(1);
  }
  EXPECT_EQ(Assignment().epoch(), 1u);
  EXPECT_THAT(h_.log, Not(Contains(HasSubstr("is dead"))));
}

TEST_F(TwoServersTest, TheDetectorAllowsForItsOwnLateness) {
  // The scheduler stands still for a minute, then hears of everyone a little
  // later than it ticks.
  h_.now += absl::Minutes(1);
  h_.core->Tick(h_.now);
  h_.Pump();
  EXPECT_EQ(Assignment().epoch(), 1u);
  EXPECT_EQ(h_.JobNamed("j").state(), v1::JOB_STATE_RUNNING);
  Train(2);
  EXPECT_EQ(Assignment().epoch(), 1u);
  // Without a sign of life the lease does end.
  h_.servers["s1"].alive = h_.servers["s2"].alive = false;
  Train(7);
  EXPECT_EQ(Assignment().epoch(), 2u);
}

TEST_F(TwoServersTest, AServerThatLagsIsToldAgain) {
  Train(2);
  h_.configured.clear();
  h_.servers["s1"].held.clear();
  Train(2);
  EXPECT_EQ(h_.servers["s1"].held.at("j").epoch(), 1u);
  EXPECT_THAT(h_.configured, SizeIs(1));
  EXPECT_EQ(Assignment().epoch(), 1u);
}

TEST_F(TwoServersTest, AnUnreachableOwnerIsRetriedWithBackoff) {
  h_.servers["s1"].refusal = absl::UnavailableError("connection refused");
  h_.servers["s2"].alive = false;
  Train(7);  // s2 dies: s1 owns everything, but does not take it.
  h_.configured.clear();
  Train(10);
  EXPECT_GE(h_.configured.size(), 4u);
  EXPECT_LE(h_.configured.size(), 6u);
  h_.servers["s1"].refusal = absl::OkStatus();
  Train(3);
  EXPECT_EQ(h_.servers["s1"].held.at("j").epoch(), 2u);
}

TEST_F(TwoServersTest, AServerWithoutRoomKeepsWhatItHadAndGetsNoMore) {
  ASSERT_THAT(h_.AddServer("s3"), IsOk());
  h_.servers["s1"].refusal = absl::ResourceExhaustedError("full");
  h_.servers["s2"].alive = false;
  Train(8);
  // The lost layers went to s3 and s1; s1 refused, so all to s3.
  EXPECT_THAT(CoreHarness::Owners(Assignment()),
              ElementsAre("s1", "s3", "s1", "s3"));
}

TEST_F(TwoServersTest, SurvivorsWithoutMemoryLeaveLayersWithoutOwner) {
  h_.servers["s1"].memory_bytes = 3 << 20;  // Staging and a little.
  ASSERT_THAT(h_.Register("s1"), IsOk());
  v1::JoinJobRequest big = Claim("big", 0, 1, 0);
  *big.add_layers() = testing::SampleLayer("wide", 512, 512);
  ASSERT_THAT(h_.Join(big), IsOk());
  ASSERT_THAT(CoreHarness::Owners(h_.JobNamed("big").assignment()),
              ElementsAre("s2"));
  h_.servers["s2"].alive = false;
  Train(8);
  EXPECT_THAT(CoreHarness::Owners(h_.JobNamed("big").assignment()),
              ElementsAre(""));
}

// Restarts of the scheduler.

TEST_F(TwoServersTest, ARestartKeepsEverything) {
  Train(5);
  h_.configured.clear();
  h_.Start();
  EXPECT_THAT(h_.Beat("j", 0, 6, 1, 1), IsOk());
  h_.Advance(absl::Seconds(10));
  EXPECT_EQ(h_.core->GetStatus(h_.now).term(), 2u);
  EXPECT_EQ(Assignment().epoch(), 1u);
  EXPECT_THAT(CoreHarness::Owners(Assignment()),
              ElementsAre("s1", "s2", "s1", "s2"));
  EXPECT_THAT(h_.configured, IsEmpty());  // Held by both, as they said.
  EXPECT_EQ(ServerNamed(h_, "s2").state(), v1::MEMBER_STATE_ALIVE);
}

TEST_F(TwoServersTest, AServerThatDiedMeanwhileIsFoundAfterOneLease) {
  Train(5);
  h_.servers["s2"].alive = false;
  h_.Start();
  Train(5);
  EXPECT_EQ(Assignment().epoch(), 1u);  // One fresh lease for everyone.
  Train(3);
  EXPECT_EQ(Assignment().epoch(), 2u);
  EXPECT_THAT(CoreHarness::Owners(Assignment()), Each("s1"));
  // The lease ended in the second after step 10.
  EXPECT_EQ(Assignment().owners(1).from_step(), 10 + kStepMargin);
}

// H36: three seconds of grace, heartbeats that a busy machine delivers late.
TEST_F(TwoServersTest, LateTicksAndLateHeartbeatsExpelNobody) {
  for (int i = 0; i < 10; ++i) {
    // Everything stands still for longer than a lease; then, as it happens, the
    // tick is served before the heartbeats.
    h_.now += absl::Seconds(15);
    h_.core->Tick(h_.now);
    h_.HeartbeatAll();
    h_.Pump();
    h_.Advance(absl::Milliseconds(300));
    EXPECT_NE(ServerNamed(h_, "s1").state(), v1::MEMBER_STATE_DEAD);
  }
  EXPECT_EQ(Assignment().epoch(), 1u);
}

TEST_F(TwoServersTest, NothingIsPlacedUntilTheOwnersAreBack) {
  h_.servers["s2"].alive = false;
  h_.Start();
  h_.Advance(absl::Seconds(1));  // s1 is back, s2 is awaited.
  ASSERT_THAT(h_.Join(Claim("k", 0, 1)), IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto response, h_.Join(Claim("k", 0, 1)));
  EXPECT_THAT(response.waiting_for(),
              ElementsAre(HasSubstr("server 's2' has not registered again")));
  h_.servers["s2"].alive = true;
  h_.Advance(absl::Seconds(1));
  ASSERT_THAT(h_.Join(Claim("k", 0, 1)), IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(response, h_.Join(Claim("k", 0, 1)));
  EXPECT_EQ(response.state(), v1::JOIN_STATE_READY);
}

TEST_F(TwoServersTest, ARestartedOwnerIsNotTakenForTheOldOne) {
  h_.servers["s2"].incarnation = 2;
  h_.servers["s2"].held.clear();
  h_.Start();
  ASSERT_THAT(h_.Register("s2"), IsOk());
  h_.Advance(absl::Seconds(1));
  EXPECT_EQ(Assignment().epoch(), 2u);
  EXPECT_EQ(h_.servers["s2"].held.at("j").epoch(), 2u);
}

TEST_F(TwoServersTest, AnEmptyStoreGoesOnAboveWhatMembersKnow) {
  Train(3);
  h_.servers["s1"].configs.clear();
  h_.servers["s2"].configs.clear();
  v1::JobHeld& held = h_.servers["s1"].held.at("j");
  held.set_epoch(7);
  held.set_world_version(4);
  h_.servers["s1"].term_seen = 9;
  h_.store = memory::CreateStateStore();
  h_.Start();
  h_.Advance(absl::Seconds(1));
  EXPECT_EQ(h_.core->GetStatus(h_.now).term(), 10u);
  // The running job cannot be taken over without its config, and is left
  // alone.
  h_.Advance(absl::Seconds(6));
  EXPECT_THAT(h_.Beat("j", 0, 4, 4, 7),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'j'")));
  EXPECT_THAT(h_.dropped, IsEmpty());
  v1::JoinJobRequest again = Claim("j", 0, 1);
  again.set_restart_count(1);
  ASSERT_THAT(h_.Join(again), IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto ready, h_.Join(again));
  EXPECT_EQ(ready.world().version(), 5);
  EXPECT_EQ(ready.assignment().epoch(), 8u);
  EXPECT_EQ(h_.store->Load()->at(kTermKey), "10");
}

TEST_F(TwoServersTest, AnOldStoreIssuesItsOwnersAnewAboveTheMembersEpoch) {
  Train(3);
  for (const char* name : {"s1", "s2"}) {
    h_.servers[name].held.at("j").set_epoch(5);
  }
  h_.Start();
  ASSERT_THAT(h_.Beat("j", 0, 40, 1, 5), IsOk());
  h_.Advance(absl::Seconds(2));
  EXPECT_EQ(Assignment().epoch(), 6u);
  EXPECT_EQ(h_.servers["s1"].held.at("j").epoch(), 6u);
  EXPECT_EQ(Assignment().owners(0).from_step(), 40 + kStepMargin);
}

TEST_F(TwoServersTest, AServerThatSawAHigherTermMakesUsGoAboveIt) {
  h_.servers["s2"].term_seen = 5;
  h_.servers["s1"].alive = false;
  Train(10);
  EXPECT_EQ(h_.core->GetStatus(h_.now).term(), 6u);
  EXPECT_THAT(CoreHarness::Owners(Assignment()), Each("s2"));
  EXPECT_EQ(h_.configured.back().request.term(), 6u);
}

TEST(RestoreTest, ADamagedRecordIsNamed) {
  const absl::Time now = absl::UnixEpoch();
  const auto create = [&](const StateMap& stored) {
    return SchedulerCore::Create(CoreOptions(), stored, 1, now).status();
  };
  EXPECT_THAT(create({{"job/j", "\xff\xff"}}),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("'job/j'"), HasSubstr("parse"))));
  EXPECT_THAT(create({{"drop/j", "\xff\xff"}}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("'drop/j'")));
  EXPECT_THAT(create({{"high_water", "\xff\xff"}}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("high_water")));
  v1::JobConfig config;
  config.set_job("j");
  config.add_layers();
  EXPECT_THAT(create({{"job/j", config.SerializeAsString()}}),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("neither a world nor wishes")));
  config.mutable_world()->set_version(1);
  EXPECT_THAT(create({{"job/j", config.SerializeAsString()}}),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("1 layers and 0 owners")));
}

TEST_F(TwoServersTest, StatusShowsLoadAndBalance) {
  const v1::GetStatusResponse status = h_.core->GetStatus(h_.now);
  EXPECT_EQ(status.store(), "memory");
  EXPECT_EQ(status.incarnation(), 1u);
  // 2 layers of 16x32 by the default curve.
  const double layer = 2 * 95e-6 + 1.667e-9 * (16 * 16 + 32 * 32);
  EXPECT_NEAR(status.servers(0).predicted_refresh_seconds(), 2 * layer, 1e-12);
  EXPECT_NEAR(status.jobs(0).refresh_seconds(3), layer, 1e-12);
  EXPECT_NEAR(status.jobs(0).imbalance(), 1, 1e-9);
  EXPECT_EQ(status.servers(1).memory_bytes(), int64_t{1} << 30);
}

}  // namespace
}  // namespace kronserve::scheduler
