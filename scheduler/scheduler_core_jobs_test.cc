// Joining a job, by plain calls on a fake clock.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "scheduler/scheduler_core.h"
#include "scheduler/testing/core_harness.h"

namespace kronserve::scheduler {
namespace {

using ::kronserve::scheduler::testing::Claim;
using ::kronserve::scheduler::testing::CoreHarness;
using ::kronserve::scheduler::testing::SampleLayer;
using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(JoinJobTest, NamesEveryFaultOfARequest) {
  CoreHarness h;
  v1::JoinJobRequest bad = Claim("", 3, 2);
  bad.set_run_id("");
  bad.set_node(std::string(300, 'n'));
  bad.set_incarnation(0);
  bad.set_restart_count(-1);
  bad.set_next_step(-5);
  bad.mutable_layers(0)->set_d_in(0);
  bad.mutable_options()->set_max_open_rounds(0);
  EXPECT_THAT(
      h.Join(bad),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          AllOf(HasSubstr("job has 0 bytes"), HasSubstr("run_id has 0 bytes"),
                HasSubstr("node has 300 bytes"),
                HasSubstr("rank 3 is not in a world of 2"),
                HasSubstr("incarnation is 0"), HasSubstr("restart_count is -1"),
                HasSubstr("next_step is -5"), HasSubstr("d_in is 0"),
                HasSubstr("max_open_rounds is 0"))));
  bad = Claim("j", 0, 0);
  EXPECT_THAT(h.Join(bad), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("world_size is 0")));
  EXPECT_EQ(h.core->GetStatus(h.now).jobs_size(), 0);
}

TEST(JoinJobTest, PendingSaysForWhomItWaits) {
  CoreHarness h;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto response, h.Join(Claim("j", 0, 2)));
  EXPECT_EQ(response.state(), v1::JOIN_STATE_PENDING);
  EXPECT_THAT(response.waiting_for(),
              ElementsAre("rank 1 of 2 has not joined",
                          "no preconditioner server is registered"));
  KRONSERVE_ASSERT_OK_AND_ASSIGN(response, h.Join(Claim("j", 1, 2)));
  EXPECT_THAT(response.waiting_for(),
              ElementsAre("no preconditioner server is registered"));
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  h.servers["s1"].refusal = absl::UnavailableError("still starting");
  KRONSERVE_ASSERT_OK_AND_ASSIGN(response, h.Join(Claim("j", 1, 2)));
  KRONSERVE_ASSERT_OK_AND_ASSIGN(response, h.Join(Claim("j", 1, 2)));
  EXPECT_THAT(response.waiting_for(),
              ElementsAre("server 's1' has not confirmed epoch 1 (still "
                          "starting)"));
  h.servers["s1"].refusal = absl::OkStatus();
  h.Advance(absl::Seconds(1));
  KRONSERVE_ASSERT_OK_AND_ASSIGN(response, h.Join(Claim("j", 1, 2)));
  EXPECT_EQ(response.state(), v1::JOIN_STATE_READY);
}

TEST(JoinJobTest, ReadyDescribesTheJob) {
  CoreHarness h;
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  ASSERT_THAT(h.AddServer("s2"), IsOk());
  const v1::JoinJobResponse ready = h.JoinAll("j", 2);
  EXPECT_EQ(ready.term(), 1u);
  EXPECT_EQ(ready.heartbeat_ms(), 1000);
  EXPECT_EQ(ready.lease_ms(), 5000);
  EXPECT_EQ(ready.world().version(), 1);
  EXPECT_EQ(ready.world().ranks_size(), 2);
  EXPECT_EQ(ready.assignment().epoch(), 1u);
  EXPECT_EQ(ready.assignment().term(), 1u);
  EXPECT_THAT(CoreHarness::Owners(ready.assignment()),
              ElementsAre("s1", "s2", "s1", "s2"));
  EXPECT_EQ(ready.assignment().servers_size(), 2);
  EXPECT_EQ(ready.assignment().servers(0).address(), "s1:7000");
  EXPECT_THAT(ready.plan(), SizeIs(4));
  EXPECT_THAT(ready.plan(0), AllOf(HasSubstr("layer 'fc0': inverse, [16, 32]"),
                                   HasSubstr("on server 's1'")));
  EXPECT_NE(ready.plan_hash(), 0u);
  EXPECT_THAT(ready.warnings(), IsEmpty());
  // Each owner got the whole configuration once.
  ASSERT_THAT(h.configured, SizeIs(2));
  EXPECT_EQ(h.configured[0].request.term(), 1u);
  EXPECT_EQ(h.configured[0].request.config().layers_size(), 4);
  EXPECT_EQ(h.configured[0].request.config().world().version(), 1);
}

TEST(JoinJobTest, IsIdempotent) {
  CoreHarness h;
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  h.JoinAll("j", 2);
  for (int i = 0; i < 3; ++i) {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto again, h.Join(Claim("j", 0, 2)));
    EXPECT_EQ(again.state(), v1::JOIN_STATE_READY);
    EXPECT_EQ(again.world().version(), 1);
    EXPECT_EQ(again.assignment().epoch(), 1u);
  }
  EXPECT_THAT(h.configured, SizeIs(1));
}

TEST(JoinJobTest, StartsAtTheLowestStepOfAll) {
  CoreHarness h;
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  v1::JoinJobRequest ahead = Claim("j", 0, 2);
  ahead.set_next_step(12);
  v1::JoinJobRequest behind = Claim("j", 1, 2);
  behind.set_next_step(10);
  ASSERT_THAT(h.Join(ahead), IsOk());
  ASSERT_THAT(h.Join(behind), IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto ready, h.Join(ahead));
  EXPECT_EQ(ready.world().start_step(), 10);
  EXPECT_EQ(ready.assignment().owners(0).from_step(), 10);
}

TEST(JoinJobTest, TwoClientsOneNameDifferentLayers) {
  CoreHarness h;
  v1::JoinJobRequest winner = Claim("jobA", 0, 1, 0);
  *winner.add_layers() = SampleLayer("fc", 10, 20);
  v1::JoinJobRequest loser = Claim("jobA", 0, 1, 0);
  loser.set_incarnation(7);
  *loser.add_layers() = SampleLayer("fc", 10, 30);
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  ASSERT_THAT(h.Join(winner), IsOk());
  EXPECT_THAT(h.Join(loser),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("layer 'fc'"), HasSubstr("[10, 30]"),
                             HasSubstr("[10, 20]"))));
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto ready, h.Join(winner));
  EXPECT_EQ(ready.state(), v1::JOIN_STATE_READY);
  EXPECT_EQ(h.JobNamed("jobA").layers(0).d_in(), 20);
}

TEST(JoinJobTest, ThreeProcessesClaimRankZero) {
  CoreHarness h;
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  int accepted = 0;
  for (uint64_t incarnation : {1, 2, 3}) {
    v1::JoinJobRequest request = Claim("j", 0, 3);
    request.set_incarnation(incarnation);
    const absl::Status status = h.Join(request).status();
    if (status.ok()) {
      ++accepted;
      continue;
    }
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAlreadyExists,
                                 HasSubstr("held by a live process")));
  }
  EXPECT_EQ(accepted, 1);
}

TEST(JoinJobTest, AnotherRunOfALiveJobIsRefused) {
  CoreHarness h;
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  h.JoinAll("j", 1);
  v1::JoinJobRequest other = Claim("j", 0, 1);
  other.set_run_id("other");
  other.set_incarnation(9);
  EXPECT_THAT(h.Join(other), StatusIs(absl::StatusCode::kAlreadyExists,
                                      HasSubstr("running as run 'run'")));
  // Once its ranks are gone the name is free, for other layers too.
  h.Advance(absl::Seconds(7));
  *other.add_layers() = SampleLayer("extra", 4, 4);
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto response, h.Join(other));
  KRONSERVE_ASSERT_OK_AND_ASSIGN(response, h.Join(other));
  EXPECT_EQ(response.state(), v1::JOIN_STATE_READY);
  EXPECT_EQ(response.world().version(), 2);
  // The old averages were dropped before the new job came.
  ASSERT_THAT(h.dropped, SizeIs(1));
  EXPECT_EQ(h.dropped[0].request.world_version(), 1);
  EXPECT_TRUE(h.dropped[0].request.finished());
  EXPECT_EQ(h.servers["s1"].held.at("j").world_version(), 2);
}

TEST(JoinJobTest, AHigherRestartReplacesTheWorldAndKeepsTheOwners) {
  CoreHarness h;
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  ASSERT_THAT(h.AddServer("s2"), IsOk());
  const v1::JoinJobResponse first = h.JoinAll("j", 2);
  v1::JoinJobRequest restarted = Claim("j", 0, 1);
  restarted.set_restart_count(1);
  restarted.set_incarnation(55);
  restarted.set_next_step(30);
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto second, h.Join(restarted));
  // The old ranks are fenced at once.
  EXPECT_THAT(h.Beat("j", 1, 31, 1, 1),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("join again")));
  EXPECT_THAT(h.Join(Claim("j", 1, 2)),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("restart 1")));
  KRONSERVE_ASSERT_OK_AND_ASSIGN(second, h.Join(restarted));
  EXPECT_EQ(second.state(), v1::JOIN_STATE_READY);
  EXPECT_EQ(second.world().version(), 2);
  EXPECT_EQ(second.assignment().epoch(), 2u);
  EXPECT_EQ(CoreHarness::Owners(second.assignment()),
            CoreHarness::Owners(first.assignment()));
  EXPECT_EQ(second.assignment().owners(1).from_step(), 30);
  EXPECT_NE(second.plan_hash(), first.plan_hash());
}

TEST(JoinJobTest, ADeadRankIsReplacedInANewWorld) {
  CoreHarness h;
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  h.JoinAll("j", 2);
  // Rank 1 lives on, rank 0 falls silent.
  for (int i = 0; i < 7; ++i) {
    h.Advance(absl::Seconds(1));
    ASSERT_THAT(h.Beat("j", 1, i, 1, 1), IsOk());
  }
  v1::JoinJobRequest reborn = Claim("j", 0, 2);
  reborn.set_incarnation(77);
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto response, h.Join(reborn));
  EXPECT_THAT(response.waiting_for(),
              ElementsAre(HasSubstr("rank 1 of 2 has to join again")));
  ASSERT_THAT(h.Join(Claim("j", 1, 2)), IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(response, h.Join(reborn));
  EXPECT_EQ(response.state(), v1::JOIN_STATE_READY);
  EXPECT_EQ(response.world().version(), 2);
  EXPECT_EQ(response.world().ranks(0).incarnation(), 77u);
}

TEST(JoinJobTest, WithoutLayersOnlyTheRendezvousIsUsed) {
  CoreHarness h;
  const v1::JoinJobResponse ready = h.JoinAll("sgd", 2, /*num_layers=*/0);
  EXPECT_EQ(ready.world().version(), 1);
  EXPECT_THAT(ready.assignment().owners(), IsEmpty());
  EXPECT_THAT(h.configured, IsEmpty());
}

TEST(JoinJobTest, LayersThatFitNowhereAreRefusedWithBothNumbers) {
  CoreHarness h;
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  v1::JoinJobRequest request = Claim("j", 0, 1, 0);
  *request.add_layers() = SampleLayer("giant", 10, 32768);
  // 2^30 elements: 2 GiB packed twice over, 8 GiB square: not in 1 GiB.
  EXPECT_THAT(h.Join(request),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("layer 'giant' needs"),
                             HasSubstr("'s1' 1073741824 bytes"))));
  request.mutable_layers(0)->set_d_in(1000000000);
  h.Advance(absl::Seconds(7));
  EXPECT_THAT(h.Join(request), StatusIs(absl::StatusCode::kResourceExhausted,
                                        HasSubstr("9223372036854775807")));
}

TEST(JoinJobTest, AServersRefusalFailsTheJoinAndFreesTheOthers) {
  CoreHarness h;
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  ASSERT_THAT(h.AddServer("s2"), IsOk());
  h.servers["s2"].refusal =
      absl::ResourceExhaustedError("predicted 9 bytes, free 8");
  ASSERT_THAT(h.Join(Claim("j", 0, 1)), IsOk());
  EXPECT_THAT(h.Join(Claim("j", 0, 1)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("server 's2' refused job 'j'"),
                             HasSubstr("predicted 9 bytes, free 8"))));
  h.Advance(absl::Seconds(1));
  EXPECT_THAT(h.servers["s1"].held, IsEmpty());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const StateMap stored, h.store->Load());
  EXPECT_EQ(stored.count("job/j"), 0u);
  // When its ranks have left, the name is free.
  h.servers["s2"].refusal = absl::OkStatus();
  h.Advance(absl::Seconds(7));
  EXPECT_EQ(h.core->GetStatus(h.now).jobs_size(), 0);
  EXPECT_GT(h.JoinAll("j", 1).world().version(), 1);
}

TEST(JoinJobTest, NothingIsSaidBeforeItIsStored) {
  CoreHarness h;
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  h.hold_writes = true;
  ASSERT_THAT(h.Join(Claim("j", 0, 1)), IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto response, h.Join(Claim("j", 0, 1)));
  EXPECT_THAT(response.waiting_for(), ElementsAre("epoch 1 is being stored"));
  EXPECT_THAT(h.configured, IsEmpty());
  ASSERT_THAT(h.held_writes, SizeIs(1));
  h.hold_writes = false;
  ASSERT_THAT(h.store->Write(h.held_writes[0].writes), IsOk());
  h.core->EffectDone(h.held_writes[0].ticket, absl::OkStatus(), h.now);
  h.Pump();
  EXPECT_THAT(h.configured, SizeIs(1));
  KRONSERVE_ASSERT_OK_AND_ASSIGN(response, h.Join(Claim("j", 0, 1)));
  EXPECT_EQ(response.state(), v1::JOIN_STATE_READY);
}

TEST(JoinJobTest, AWriteThatFailsIsRetriedAndSaid) {
  CoreHarness h;
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  h.store_status = absl::UnavailableError("disk is full");
  ASSERT_THAT(h.Join(Claim("j", 0, 1)), IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto response, h.Join(Claim("j", 0, 1)));
  EXPECT_THAT(response.waiting_for(),
              ElementsAre("epoch 1 is being stored: disk is full"));
  EXPECT_THAT(h.configured, IsEmpty());
  h.store_status = absl::OkStatus();
  h.Advance(absl::Seconds(2));
  KRONSERVE_ASSERT_OK_AND_ASSIGN(response, h.Join(Claim("j", 0, 1)));
  EXPECT_EQ(response.state(), v1::JOIN_STATE_READY);
}

TEST(JoinJobTest, WarnsOfWhatIsEasilyRegretted) {
  CoreHarness h;
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  v1::JoinJobRequest request = Claim("j", 0, 1);
  request.mutable_options()->set_factor_init(v1::FACTOR_INIT_IDENTITY);
  request.mutable_options()->set_factor_source(v1::FACTOR_SOURCE_ONE_RANK);
  request.mutable_options()->set_factor_update_steps(4);
  ASSERT_THAT(h.Join(request), IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto ready, h.Join(request));
  EXPECT_THAT(ready.warnings(),
              ElementsAre(HasSubstr("factor_init identity"),
                          AllOf(HasSubstr("one_rank"), HasSubstr("side, 32")),
                          HasSubstr("10 is not a multiple")));
}

TEST(JoinJobTest, TheNumberOfJobsIsBounded) {
  CoreHarness h;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_THAT(h.Join(Claim(absl::StrCat("j", i), 0, 2, 0)), IsOk());
  }
  EXPECT_THAT(h.Join(Claim("one more", 0, 2, 0)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("at most 1000")));
}

}  // namespace
}  // namespace kronserve::scheduler
