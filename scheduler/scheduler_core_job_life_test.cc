// A job from its first heartbeat to its end, by plain calls on a fake clock.

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
using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(FinishJobTest, FreesEverythingAndIsIdempotent) {
  CoreHarness h;
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  h.JoinAll("j", 1);
  v1::FinishJobRequest finish;
  finish.set_job("j");
  EXPECT_THAT(h.core->FinishJob(finish, h.now),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("world_version is 0")));
  finish.set_world_version(1);
  EXPECT_THAT(h.core->FinishJob(finish, h.now), IsOk());
  h.Pump();
  EXPECT_THAT(h.servers["s1"].held, IsEmpty());
  EXPECT_EQ(h.JobNamed("j").state(), v1::JOB_STATE_FINISHED);
  EXPECT_THAT(h.core->FinishJob(finish, h.now), IsOk());
  h.Advance(absl::Seconds(6));
  finish.set_job("never registered");
  EXPECT_THAT(h.core->FinishJob(finish, h.now), IsOk());
  EXPECT_THAT(h.Beat("j", 0, 5, 1, 1),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'j'")));
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const StateMap stored, h.store->Load());
  EXPECT_EQ(stored.count("job/j") + stored.count("drop/j"), 0u);
}

// What is written later about the same job does not take that back.
TEST(FinishJobTest, IsStoredWhenItsOwnWriteIsDone) {
  CoreHarness h;
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  h.JoinAll("j", 1);
  v1::FinishJobRequest finish;
  finish.set_job("j");
  finish.set_world_version(1);
  h.hold_writes = true;
  ASSERT_THAT(h.core->FinishJob(finish, h.now), IsOk());
  h.Pump();
  const uint64_t save = h.core->LastSave("j");
  EXPECT_THAT(h.core->Stored("j", save),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("decided but is not stored")));
  ASSERT_THAT(h.held_writes, SizeIs(1));
  // The server then drops the job, and that is written next.
  h.core->EffectDone(h.held_writes[0].ticket, absl::OkStatus(), h.now);
  h.Pump();
  ASSERT_THAT(h.held_writes, SizeIs(2));
  EXPECT_GT(h.core->LastSave("j"), save);
  EXPECT_THAT(h.core->Stored("j", save), IsOk());
  EXPECT_THAT(h.core->Stored("j", h.core->LastSave("j")),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("ask again")));
  EXPECT_THAT(h.core->Stored("forgotten", save), IsOk());
}

TEST(FinishJobTest, ALateWordFromAReplacedWorldEndsNothing) {
  CoreHarness h;
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  h.JoinAll("j", 1);
  v1::JoinJobRequest restarted = Claim("j", 0, 1);
  restarted.set_restart_count(1);
  ASSERT_THAT(h.Join(restarted), IsOk());
  v1::FinishJobRequest finish;
  finish.set_job("j");
  finish.set_world_version(1);
  EXPECT_THAT(h.core->FinishJob(finish, h.now), IsOk());
  EXPECT_NE(h.JobNamed("j").state(), v1::JOB_STATE_FINISHED);
}

TEST(FinishJobTest, TheNameCanBeUsedAgainWithAHigherWorldVersion) {
  CoreHarness h;
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  for (int64_t life = 1; life <= 3; ++life) {
    const v1::JoinJobResponse ready =
        h.JoinAll("j", 1, /*num_layers=*/static_cast<int>(life));
    EXPECT_EQ(ready.world().version(), life);
    EXPECT_EQ(ready.assignment().epoch(), static_cast<uint64_t>(life));
    v1::FinishJobRequest finish;
    finish.set_job("j");
    finish.set_world_version(life);
    ASSERT_THAT(h.core->FinishJob(finish, h.now), IsOk());
    h.Pump();
    h.Start();  // Also over a restart of the scheduler.
    ASSERT_THAT(h.Register("s1"), IsOk());
  }
}

TEST(FinishJobTest, AServerThatIsAwayDropsTheJobWhenItIsBack) {
  CoreHarness h;
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  h.JoinAll("j", 1);
  h.servers["s1"].alive = false;
  v1::FinishJobRequest finish;
  finish.set_job("j");
  finish.set_world_version(1);
  ASSERT_THAT(h.core->FinishJob(finish, h.now), IsOk());
  h.Pump();
  EXPECT_THAT(h.servers["s1"].held, SizeIs(1));
  h.Start();  // The order is remembered over a restart.
  h.servers["s1"].alive = true;
  h.Advance(absl::Seconds(3));
  EXPECT_THAT(h.servers["s1"].held, IsEmpty());
}

TEST(FinishJobTest, OnlyTheNewestFinishedJobsAreShown) {
  CoreHarness h;
  for (int i = 0; i < 105; ++i) {
    const std::string name = absl::StrCat("j", i);
    const auto ready = h.JoinAll(name, 1, /*num_layers=*/0);
    v1::FinishJobRequest finish;
    finish.set_job(name);
    finish.set_world_version(ready.world().version());
    ASSERT_THAT(h.core->FinishJob(finish, h.now), IsOk());
    h.Pump();
  }
  h.Advance(absl::Seconds(1));
  EXPECT_EQ(h.core->GetStatus(h.now).jobs_size(), 100);
  EXPECT_EQ(h.JobNamed("j0").job(), "");
  EXPECT_EQ(h.JobNamed("j104").state(), v1::JOB_STATE_FINISHED);
}

TEST(JobLifeTest, GoesFromJoiningToRunningToIdleToExpired) {
  CoreOptions options;
  options.job_ttl = absl::Seconds(20);
  CoreHarness h(options);
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  ASSERT_THAT(h.Join(Claim("j", 0, 2)), IsOk());
  EXPECT_EQ(h.JobNamed("j").state(), v1::JOB_STATE_JOINING);
  h.JoinAll("j", 2);
  EXPECT_EQ(h.JobNamed("j").state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(h.JobNamed("j").step(), -1);
  ASSERT_THAT(h.Beat("j", 0, 17, 1, 1), IsOk());
  ASSERT_THAT(h.Beat("j", 1, 16, 1, 1), IsOk());
  EXPECT_EQ(h.JobNamed("j").step(), 17);
  h.Advance(absl::Seconds(7));
  EXPECT_EQ(h.JobNamed("j").state(), v1::JOB_STATE_IDLE);
  h.Advance(absl::Seconds(20));
  EXPECT_EQ(h.JobNamed("j").state(), v1::JOB_STATE_FINISHED);
  EXPECT_THAT(h.servers["s1"].held, IsEmpty());
  // Its checkpoints stay.
  ASSERT_THAT(h.dropped, SizeIs(1));
  EXPECT_FALSE(h.dropped[0].request.finished());
}

TEST(RankHeartbeatTest, AnswersWithItsErrors) {
  CoreHarness h;
  ASSERT_THAT(h.AddServer("s1"), IsOk());
  h.Advance(absl::Seconds(6));
  h.JoinAll("j", 1);
  EXPECT_THAT(h.Beat("k", 0, 1, 1, 1),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'k'")));
  EXPECT_THAT(h.Beat("j", 0, 1, 0, 1),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("world 0")));
  EXPECT_THAT(h.Beat("j", 0, 1, 5, 1),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("known up to world 1 here, not 5")));
  EXPECT_THAT(
      h.Beat("j", 0, -2, 1, 1),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("step -2")));
  EXPECT_THAT(h.Beat("j", 1, 1, 1, 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rank 1 is not in a world of 1")));
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto fresh, h.Beat("j", 0, 1, 1, 1));
  EXPECT_FALSE(fresh.has_assignment());
  EXPECT_EQ(fresh.term(), 1u);
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto stale, h.Beat("j", 0, 1, 1, 0));
  EXPECT_EQ(stale.assignment().epoch(), 1u);
}

TEST(RendezvousTest, BelongsToOneWorld) {
  CoreHarness h;
  const auto ready = h.JoinAll("j", 1, /*num_layers=*/0);
  v1::PutRendezvousRequest put;
  put.set_job("j");
  put.set_world_version(1);
  put.set_key("rank0");
  put.set_value("127.0.0.1:1234");
  ASSERT_THAT(h.core->PutRendezvous(put), IsOk());
  v1::GetRendezvousRequest get;
  get.set_job("j");
  get.set_world_version(1);
  get.add_keys("rank0");
  get.add_keys("rank1");
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto entries,
                                 h.core->GetRendezvous(get));
  ASSERT_EQ(entries.entries_size(), 1);
  EXPECT_EQ(entries.entries(0).value(), "127.0.0.1:1234");

  v1::JoinJobRequest restarted = Claim("j", 0, 1, 0);
  restarted.set_restart_count(1);
  ASSERT_THAT(h.Join(restarted), IsOk());
  EXPECT_THAT(h.core->PutRendezvous(put),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("world 1")));
  EXPECT_THAT(h.core->GetRendezvous(get),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("world 1")));
  get.set_world_version(2);
  EXPECT_EQ(h.core->GetRendezvous(get)->entries_size(), 0);
  put.set_world_version(2);
  put.set_value(std::string(65537, 'v'));
  EXPECT_THAT(
      h.core->PutRendezvous(put),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("65537")));
  h.Advance(absl::Seconds(6));
  put.set_job("k");
  EXPECT_THAT(h.core->PutRendezvous(put),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'k'")));
}

}  // namespace
}  // namespace kronserve::scheduler
