// Layers that move between servers, and what happens to them when a source, a
// receiver or the scheduler goes in the middle.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "scheduler/scheduler_core.h"
#include "scheduler/testing/core_harness.h"

namespace kronserve::scheduler {
namespace {

using ::kronserve::scheduler::testing::Claim;
using ::kronserve::scheduler::testing::CoreHarness;
using ::kronserve::scheduler::testing::FakeServer;
using ::kronserve::testing::IsOk;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::DrainServerRequest Drain(const std::string& server) {
  v1::DrainServerRequest request;
  request.set_server(server);
  return request;
}

// Two servers with two layers each (s1: 0 and 2, s2: 1 and 3), one rank that
// makes a step a second; the states of the layers are 1, 3, 2 and 4.
class MovesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_THAT(h_.AddServer("s1"), IsOk());
    ASSERT_THAT(h_.AddServer("s2"), IsOk());
    const v1::JoinJobResponse ready = h_.JoinAll("j", 1);
    ASSERT_THAT(CoreHarness::Owners(ready.assignment()),
                ElementsAre("s1", "s2", "s1", "s2"));
    Train(10);
  }

  void Train(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      h_.Advance(absl::Seconds(1));
      ASSERT_THAT(h_.Beat("j", 0, ++step_, 1, 1), IsOk());
    }
  }

  v1::Assignment Assignment() { return h_.JobNamed("j").assignment(); }

  // The state that the owner of `layer` holds; 0 if it holds none.
  int64_t StateOf(int layer) {
    const std::string owner = Assignment().owners(layer).server();
    if (owner.empty() || !h_.servers[owner].alive) return 0;
    const std::map<int, int64_t>& states = h_.servers[owner].states["j"];
    const auto found = states.find(layer);
    return found == states.end() ? 0 : found->second;
  }

  CoreHarness h_;
  int64_t step_ = 0;
};

TEST_F(MovesTest, AMoveNamesItsSourceAndEndsWhenTheLayerHasArrived) {
  h_.servers["s1"].hold_transfers = true;
  ASSERT_THAT(h_.core->DrainServer(Drain("s1"), h_.now), IsOk());
  h_.Pump();
  v1::Assignment moving = Assignment();
  EXPECT_EQ(moving.epoch(), 2u);
  EXPECT_THAT(CoreHarness::Owners(moving), Each("s2"));
  EXPECT_EQ(moving.owners(0).source(), "s1");
  EXPECT_EQ(moving.owners(1).source(), "");
  // Newest step 10, the margin, and three heartbeats at a step a second.
  EXPECT_EQ(moving.owners(0).from_step(), 10 + kStepMargin + 3);
  EXPECT_EQ(moving.owners(1).from_step(), 0);
  EXPECT_THAT(moving.servers(), SizeIs(2));
  // Both are told.
  EXPECT_EQ(h_.servers["s1"].held.at("j").epoch(), 2u);
  EXPECT_THAT(h_.servers["s1"].held.at("j").leaving(), ElementsAre(0, 2));
  EXPECT_THAT(h_.servers["s2"].held.at("j").awaited(), ElementsAre(0, 2));
  EXPECT_THAT(h_.JobNamed("j").moving(), ElementsAre(0, 2));
  Train(10);
  EXPECT_THAT(h_.JobNamed("j").moving(), ElementsAre(0, 2));
  h_.configured.clear();
  h_.servers["s1"].hold_transfers = false;
  Train(2);
  EXPECT_THAT(h_.JobNamed("j").moving(), IsEmpty());
  moving = Assignment();
  EXPECT_EQ(moving.epoch(), 2u);  // The same: only the source is gone.
  EXPECT_EQ(moving.owners(0).source(), "");
  ASSERT_THAT(moving.servers(), SizeIs(1));
  EXPECT_EQ(moving.servers(0).name(), "s2");
  EXPECT_THAT(h_.configured, IsEmpty());  // Nobody needs to hear of that.
  EXPECT_EQ(StateOf(0), 1);
  EXPECT_EQ(StateOf(2), 2);
  // Durably.
  v1::JobConfig stored;
  ASSERT_TRUE(stored.ParseFromString(h_.store->Load()->at("job/j")));
  EXPECT_EQ(stored.assignment().owners(0).source(), "");
}

// Found by the simulation: the receiver waited for it for ever.
TEST_F(MovesTest, ASourceThatDoesNotHaveTheLayerIsNotWaitedFor) {
  h_.servers["s1"].hold_transfers = true;
  ASSERT_THAT(h_.core->DrainServer(Drain("s1"), h_.now), IsOk());
  h_.Pump();
  h_.servers["s1"].held.at("j").clear_leaving();
  h_.servers["s1"].states["j"].clear();
  Train(1);
  EXPECT_THAT(h_.JobNamed("j").moving(), ElementsAre(0, 2));
  Train(5);
  EXPECT_THAT(h_.JobNamed("j").moving(), IsEmpty());
  EXPECT_EQ(Assignment().epoch(), 3u);
  EXPECT_THAT(CoreHarness::Owners(Assignment()), Each("s2"));
  EXPECT_GT(StateOf(0), 4);  // It began anew.
}

TEST_F(MovesTest, ASourceHearsWhenItsStepsAreOver) {
  ASSERT_THAT(h_.core->DrainServer(Drain("s1"), h_.now), IsOk());
  h_.Pump();
  Train(5);  // Step 15 is begun, but no heartbeat has said so yet.
  EXPECT_EQ(h_.servers["s1"].progress["j"], 14);
  EXPECT_THAT(h_.servers["s1"].held.at("j").leaving(), SizeIs(2));
  Train(1);
  EXPECT_THAT(h_.servers["s1"].held.at("j").leaving(), IsEmpty());
  ASSERT_THAT(h_.servers["s1"].heard.jobs(), SizeIs(1));
  EXPECT_EQ(h_.servers["s1"].heard.jobs(0).world_version(), 1);
}

TEST_F(MovesTest, WithoutALivingRankNothingIsWaitedFor) {
  h_.Advance(absl::Seconds(10));
  ASSERT_EQ(h_.JobNamed("j").state(), v1::JOB_STATE_IDLE);
  ASSERT_THAT(h_.core->DrainServer(Drain("s1"), h_.now), IsOk());
  h_.Pump();
  h_.Advance(absl::Seconds(3));
  EXPECT_THAT(h_.JobNamed("j").moving(), IsEmpty());
  EXPECT_EQ(StateOf(0), 1);
  EXPECT_TRUE(h_.servers["s1"].heard.drained());
}

TEST_F(MovesTest, AMoveStartsBeyondWhereAFastJobWillBe) {
  for (int i = 0; i < 3; ++i) {
    h_.Advance(absl::Seconds(1));
    step_ += 100;
    ASSERT_THAT(h_.Beat("j", 0, step_, 1, 1), IsOk());
  }
  ASSERT_THAT(h_.core->DrainServer(Drain("s1"), h_.now), IsOk());
  EXPECT_EQ(Assignment().owners(0).from_step(), 310 + kStepMargin + 300);
}

TEST_F(MovesTest, ARestartedSchedulerHearsFromServersWhereTheJobIs) {
  h_.servers["s1"].newest_steps["j"] = 50;
  h_.Start();
  h_.Advance(absl::Seconds(1));
  ASSERT_THAT(h_.core->DrainServer(Drain("s1"), h_.now), IsOk());
  EXPECT_EQ(Assignment().epoch(), 1u);  // Where is the job, and how fast?
  h_.Advance(absl::Seconds(2));
  EXPECT_EQ(h_.JobNamed("j").step(), 50);
  EXPECT_EQ(Assignment().epoch(), 2u);
  EXPECT_EQ(Assignment().owners(0).from_step(), 50 + kStepMargin);
}

TEST_F(MovesTest, ALayerMovesAgainOnlyWhenItHasArrived) {
  ASSERT_THAT(h_.AddServer("s3"), IsOk());
  ASSERT_THAT(h_.AddServer("s4"), IsOk());
  Train(10);  // They take their share.
  for (auto& [name, server] : h_.servers) server.hold_transfers = true;
  ASSERT_THAT(h_.core->DrainServer(Drain("s1"), h_.now), IsOk());
  h_.Pump();
  ASSERT_THAT(h_.JobNamed("j").moving(), SizeIs(1));
  const int layer = h_.JobNamed("j").moving(0);
  const std::string receiver = Assignment().owners(layer).server();
  ASSERT_THAT(h_.core->DrainServer(Drain(receiver), h_.now), IsOk());
  h_.Pump();
  Train(5);
  EXPECT_EQ(Assignment().owners(layer).server(), receiver);
  EXPECT_EQ(Assignment().owners(layer).source(), "s1");
  for (auto& [name, server] : h_.servers) server.hold_transfers = false;
  Train(20);
  EXPECT_THAT(h_.JobNamed("j").moving(), IsEmpty());
  EXPECT_TRUE(h_.servers["s1"].heard.drained());
  EXPECT_TRUE(h_.servers[receiver].heard.drained());
  EXPECT_THAT(
      (std::vector<int64_t>{StateOf(0), StateOf(1), StateOf(2), StateOf(3)}),
      ElementsAre(1, 3, 2, 4));
}

TEST_F(MovesTest, ANewWorldKeepsTheSources) {
  h_.servers["s1"].hold_transfers = true;
  ASSERT_THAT(h_.core->DrainServer(Drain("s1"), h_.now), IsOk());
  h_.Pump();
  v1::JoinJobRequest again = Claim("j", 0, 1);
  again.set_restart_count(1);
  again.set_next_step(8);
  ASSERT_THAT(h_.Join(again), IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto ready, h_.Join(again));
  EXPECT_EQ(ready.world().version(), 2);
  EXPECT_EQ(ready.assignment().owners(0).server(), "s2");
  EXPECT_EQ(ready.assignment().owners(0).source(), "s1");
  EXPECT_EQ(ready.assignment().owners(0).from_step(), 8);
  h_.servers["s1"].hold_transfers = false;
  // All steps before the first of the new world are over: it goes at once.
  h_.Advance(absl::Seconds(2));
  EXPECT_THAT(h_.JobNamed("j").moving(), IsEmpty());
  EXPECT_EQ(StateOf(0), 1);
}

TEST_F(MovesTest, AReceiverWithoutRoomSendsTheLayersBack) {
  h_.servers["s2"].refusal = absl::ResourceExhaustedError("full");
  ASSERT_THAT(h_.core->DrainServer(Drain("s1"), h_.now), IsOk());
  h_.Pump();
  h_.Advance(absl::Seconds(1));
  EXPECT_THAT(CoreHarness::Owners(Assignment()),
              ElementsAre("s1", "s2", "s1", "s2"));
  EXPECT_THAT(h_.JobNamed("j").moving(), IsEmpty());
  EXPECT_THAT(h_.JobNamed("j").placement_note(),
              HasSubstr("refused more layers: s2"));
  EXPECT_EQ(StateOf(0), 1);
  EXPECT_FALSE(h_.servers["s1"].heard.drained());
  // Somebody else has room.
  h_.servers["s2"].refusal = absl::OkStatus();
  ASSERT_THAT(h_.AddServer("s3"), IsOk());
  Train(10);
  EXPECT_THAT(CoreHarness::Owners(Assignment()),
              ElementsAre("s3", "s2", "s3", "s2"));
  EXPECT_EQ(StateOf(0), 1);
}

// Who goes, and in which phase of the move of layers 0 and 2 from s1 to s2.

struct Phase {
  std::string name;
  // The layers' states are at s2.
  bool handed_over = false;
};

enum class Victim { kSource, kReceiver, kScheduler };

struct Fault {
  Phase phase;
  std::set<Victim> victims;
  // Servers come back at once as new processes.
  bool restart = false;

  bool Hits(Victim victim) const { return victims.count(victim) > 0; }
};

// The faults of one phase that hit a server.
void AddServerFaults(const Phase& phase, Victim victim,
                     std::vector<Fault>* faults) {
  for (const bool restart : {false, true}) {
    faults->push_back({phase, {victim}, restart});
    faults->push_back({phase, {victim, Victim::kScheduler}, restart});
  }
}

std::vector<Fault> Faults() {
  std::vector<Fault> faults;
  for (const Phase& phase :
       {Phase{"Decided"}, Phase{"Stored"}, Phase{"Announced"},
        Phase{"StepsOver"}, Phase{"HandedOver", true}, Phase{"Over", true}}) {
    faults.push_back({phase, {Victim::kScheduler}});
    AddServerFaults(phase, Victim::kSource, &faults);
    AddServerFaults(phase, Victim::kReceiver, &faults);
  }
  return faults;
}

std::string NameOf(const ::testing::TestParamInfo<Fault>& info) {
  const Fault& fault = info.param;
  std::string name = fault.phase.name;
  if (fault.Hits(Victim::kSource)) name += "Source";
  if (fault.Hits(Victim::kReceiver)) name += "Receiver";
  if (fault.Hits(Victim::kScheduler)) name += "Scheduler";
  return name + (fault.restart ? "Restarts" : "Dies");
}

class MoveFaultTest : public MovesTest,
                      public ::testing::WithParamInterface<Fault> {
 protected:
  // Pins both layers of s1 to s2 and lets the move come to the phase.
  void Reach(const std::string& phase) {
    FakeServer& s1 = h_.servers["s1"];
    FakeServer& s2 = h_.servers["s2"];
    s1.hold_transfers = true;
    h_.hold_writes = phase == "Decided";
    if (phase == "Stored") s1.refusal = s2.refusal = absl::UnavailableError("");
    v1::PinLayersRequest pin;
    pin.set_job("j");
    pin.add_layers("fc0");
    pin.add_layers("fc2");
    pin.set_server("s2");
    ASSERT_THAT(h_.core->PinLayers(pin, h_.now), IsOk());
    h_.Pump();
    h_.Advance(absl::Milliseconds(100));
    h_.hold_writes = false;
    if (phase == "Decided") return;
    ASSERT_THAT(h_.JobNamed("j").moving(), ElementsAre(0, 2));
    if (phase == "Stored" || phase == "Announced") return;
    Train(8);
    ASSERT_GE(s1.progress["j"], Assignment().owners(0).from_step());
    if (phase == "StepsOver") return;
    s1.hold_transfers = false;
    s1.HandOver("j", &s2);
    ASSERT_THAT(h_.JobNamed("j").moving(), SizeIs(2));
    if (phase == "HandedOver") return;
    h_.HeartbeatAll();
    h_.Pump();
    ASSERT_THAT(h_.JobNamed("j").moving(), IsEmpty());
  }

  void Strike(const std::string& name) {
    FakeServer& server = h_.servers[name];
    server.alive = false;
    if (GetParam().restart) {
      server.Restart();
      if (!GetParam().Hits(Victim::kScheduler)) {
        ASSERT_THAT(h_.Register(name), IsOk());
      }
    }
  }
};

TEST_P(MoveFaultTest, EveryLayerIsServedAndItsStateThereOrItsLossNamed) {
  const Fault& fault = GetParam();
  Reach(fault.phase.name);
  if (fault.Hits(Victim::kScheduler)) h_.Start();
  if (fault.Hits(Victim::kSource)) Strike("s1");
  if (fault.Hits(Victim::kReceiver)) Strike("s2");
  for (auto& [name, server] : h_.servers) {
    server.hold_transfers = false;
    server.refusal = absl::OkStatus();
  }
  Train(25);
  EXPECT_THAT(h_.JobNamed("j").moving(), IsEmpty());
  const bool at_source = !fault.phase.handed_over;
  const bool kept =
      !fault.Hits(at_source ? Victim::kSource : Victim::kReceiver);
  const std::vector<int64_t> original = {1, 3, 2, 4};
  for (int layer = 0; layer < 4; ++layer) {
    SCOPED_TRACE(layer);
    EXPECT_NE(StateOf(layer), 0) << "not served";
    const bool moves = layer % 2 == 0;
    const bool expect_kept = moves ? kept : !fault.Hits(Victim::kReceiver);
    EXPECT_EQ(StateOf(layer) == original[layer], expect_kept);
    if (expect_kept) continue;
    EXPECT_THAT(h_.log, Contains(HasSubstr(absl::StrCat("layer 'fc", layer,
                                                        "' began on server"))));
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, MoveFaultTest, ::testing::ValuesIn(Faults()),
                         NameOf);

}  // namespace
}  // namespace kronserve::scheduler
