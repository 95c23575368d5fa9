// Job checkpoints: one cut over all owners, and worlds that start from one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_THAT(h_.AddServer("s1"), IsOk());
    ASSERT_THAT(h_.AddServer("s2"), IsOk());
    h_.JoinAll("j", 1);
    Train(10);
  }

  void Train(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      h_.Advance(absl::Seconds(1));
      ASSERT_THAT(h_.Beat("j", 0, ++step_, world_, 1), IsOk());
    }
  }

  absl::StatusOr<v1::CheckpointJobResponse> Checkpoint(const std::string& id,
                                                       int64_t step = -1) {
    v1::CheckpointJobRequest request;
    request.set_job("j");
    request.set_id(id);
    if (step >= 0) request.set_step(step);
    auto response = h_.core->CheckpointJob(request, h_.now);
    h_.Pump();
    return response;
  }

  absl::Status Restore(const std::string& id) {
    v1::RestoreJobRequest request;
    request.set_job("j");
    request.set_id(id);
    const absl::Status status = h_.core->RestoreJob(request, h_.now).status();
    h_.Pump();
    return status;
  }

  // The rank restarts and trains from `next_step`.
  absl::StatusOr<v1::JoinJobResponse> Rejoin(int64_t next_step) {
    v1::JoinJobRequest claim = Claim("j", 0, 1);
    claim.set_restart_count(++restarts_);
    claim.set_next_step(next_step);
    const auto first = h_.Join(claim);
    if (!first.ok()) return first;
    return h_.Join(claim);
  }

  CoreHarness h_;
  int64_t step_ = 0;
  int64_t world_ = 1;
  int64_t restarts_ = 0;
};

// 0.3 s after its first report nobody knows where the job will be.
TEST_F(CheckpointTest, AJobThatHasJustBegunIsCutWhenItsPaceIsKnown) {
  h_.JoinAll("young", 1);
  ASSERT_THAT(h_.Beat("young", 0, 20, 1, 1), IsOk());
  v1::CheckpointJobRequest request;
  request.set_job("young");
  request.set_id("c1");
  h_.Advance(absl::Milliseconds(300));
  EXPECT_THAT(h_.core->CheckpointJob(request, h_.now),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("'young'"), HasSubstr("retry"))));
  h_.Advance(absl::Milliseconds(700));
  ASSERT_THAT(h_.Beat("young", 0, 120, 1, 1), IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto answer,
                                 h_.core->CheckpointJob(request, h_.now));
  // 100 steps a second, three heartbeats of 1 s, and 2.
  EXPECT_EQ(answer.step(), 120 + 2 + 300);
}

TEST_F(CheckpointTest, IsCutAheadWrittenByAllAndCommittedOnce) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto answer, Checkpoint("c1"));
  EXPECT_EQ(answer.state(), v1::CHECKPOINT_STATE_WRITING);
  // Newest step 10, the margin, and three heartbeats at a step a second.
  EXPECT_EQ(answer.step(), 10 + kStepMargin + 3);
  EXPECT_EQ(answer.layers(), 4);
  Train(3);
  KRONSERVE_ASSERT_OK_AND_ASSIGN(answer, Checkpoint("c1"));
  EXPECT_EQ(answer.state(), v1::CHECKPOINT_STATE_WRITING);
  EXPECT_EQ(answer.step(), 15);  // A repeat does not move the cut.
  EXPECT_EQ(answer.layers_written(), 0);
  EXPECT_THAT(h_.committed, IsEmpty());
  Train(5);
  KRONSERVE_ASSERT_OK_AND_ASSIGN(answer, Checkpoint("c1"));
  EXPECT_EQ(answer.state(), v1::CHECKPOINT_STATE_COMPLETE);
  EXPECT_EQ(answer.layers_written(), 4);
  ASSERT_THAT(h_.committed, SizeIs(1));
  const v1::CommitCheckpointRequest& commit = h_.committed[0].request;
  EXPECT_EQ(commit.id(), "c1");
  EXPECT_EQ(commit.step(), 15);
  EXPECT_EQ(commit.world_version(), 1);
  ASSERT_THAT(commit.files(), SizeIs(4));
  EXPECT_EQ(commit.files(3).path(), "layer3");
  EXPECT_EQ(h_.JobNamed("j").checkpoint(), "c1");
  EXPECT_EQ(h_.JobNamed("j").checkpoint_step(), 15);
  // Still known after a restart.
  h_.Start();
  EXPECT_EQ(h_.JobNamed("j").checkpoint(), "c1");
  KRONSERVE_ASSERT_OK_AND_ASSIGN(answer, Checkpoint("c1"));
  EXPECT_EQ(answer.state(), v1::CHECKPOINT_STATE_COMPLETE);
}

TEST_F(CheckpointTest, MayBeAskedForAtAStep) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto answer, Checkpoint("c1", 25));
  EXPECT_EQ(answer.step(), 25);
  Train(15);
  EXPECT_EQ(Checkpoint("c1")->state(), v1::CHECKPOINT_STATE_WRITING);
  Train(3);
  EXPECT_EQ(Checkpoint("c1")->state(), v1::CHECKPOINT_STATE_COMPLETE);
}

TEST_F(CheckpointTest, AStepThatIsFarAheadKeepsNoOtherAway) {
  ASSERT_THAT(Checkpoint("far", 1000000), IsOk());
  Train(1);
  EXPECT_THAT(Checkpoint("later", 1000001),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("'far' after step 1000000")));
  // One that cannot be cut leaves it alone.
  EXPECT_FALSE(Checkpoint("too-early", 0).ok());
  EXPECT_THAT(Checkpoint("far"), IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto sooner, Checkpoint("sooner", 20));
  EXPECT_EQ(sooner.step(), 20);
  EXPECT_THAT(Checkpoint("far"), StatusIs(absl::StatusCode::kDataLoss,
                                          HasSubstr("gave way to 'sooner'")));
  // As soon as possible is sooner still, and has no other before it.
  ASSERT_THAT(Checkpoint("now"), IsOk());
  EXPECT_EQ(Checkpoint("now")->step(), 11 + kStepMargin + 3);
  EXPECT_THAT(Checkpoint("earlier", 12),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("'now' after step 16")));
  Train(8);
  EXPECT_EQ(Checkpoint("now")->state(), v1::CHECKPOINT_STATE_COMPLETE);
  EXPECT_EQ(h_.committed.size(), 1u);
}

TEST_F(CheckpointTest, OneThatIsBegunGivesWayToNone) {
  ASSERT_THAT(Checkpoint("c1", 25), IsOk());
  // Its calls are ahead of what we have heard of the job.
  h_.servers["s1"].progress["j"] = 26;
  h_.Advance(absl::Milliseconds(500));
  ASSERT_EQ(Checkpoint("c1")->layers_written(), 2);
  EXPECT_THAT(Checkpoint("c2"), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("'c1' after step 25")));
}

TEST_F(CheckpointTest, AnswersWithItsErrors) {
  for (const char* id : {"", "a/b", ".", "..", "with space"}) {
    EXPECT_THAT(Checkpoint(id),
                StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
    if (*id != 0) {
      EXPECT_THAT(Restore(id),
                  StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
    }
  }
  EXPECT_THAT(Checkpoint(std::string(65, 'a')),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
  v1::CheckpointJobRequest nobody;
  nobody.set_job("k");
  nobody.set_id("c1");
  EXPECT_THAT(h_.core->CheckpointJob(nobody, h_.now),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'k'")));
  EXPECT_THAT(h_.core->RestoreJob(v1::RestoreJobRequest(), h_.now),
              StatusIs(absl::StatusCode::kNotFound, ::testing::_));
  EXPECT_THAT(Checkpoint("c1", 9),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("step 9"), HasSubstr("10"))));
  ASSERT_THAT(Checkpoint("c1"), IsOk());
  EXPECT_THAT(Checkpoint("c2"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("'c1' after step 15 is being written")));
}

TEST_F(CheckpointTest, NeedsACheckpointDirectoryOnEveryOwner) {
  h_.servers["s2"].state_recovery = v1::STATE_RECOVERY_NONE;
  Train(1);
  EXPECT_THAT(Checkpoint("c1"), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("server 's2'")));
}

TEST_F(CheckpointTest, NeedsARunningJob) {
  h_.Advance(absl::Seconds(10));
  EXPECT_THAT(Checkpoint("c1"), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("not running")));
}

TEST_F(CheckpointTest, AFileThatCannotBeWrittenFailsIt) {
  h_.servers["s2"].checkpoint_status = absl::DataLossError("disk full");
  ASSERT_THAT(Checkpoint("c1"), IsOk());
  Train(1);
  EXPECT_THAT(Checkpoint("c1"),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("'c1'"), HasSubstr("disk full"))));
  h_.Start();
  Train(2);
  EXPECT_THAT(Checkpoint("c1"),
              StatusIs(absl::StatusCode::kDataLoss, ::testing::_));
  h_.servers["s2"].checkpoint_status = absl::OkStatus();
  ASSERT_THAT(Checkpoint("c2"), IsOk());
  Train(10);
  EXPECT_EQ(Checkpoint("c2")->state(), v1::CHECKPOINT_STATE_COMPLETE);
  EXPECT_EQ(h_.JobNamed("j").checkpoint(), "c2");
}

TEST_F(CheckpointTest, AServerThatDiesBeforeItsFilesAreInFailsIt) {
  h_.servers["s2"].alive = false;
  ASSERT_THAT(Checkpoint("c1"), IsOk());
  Train(8);
  EXPECT_THAT(Checkpoint("c1"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("server 's2' is dead and had not written")));
}

TEST_F(CheckpointTest, AServerThatDiesAfterItsFilesAreInDoesNot) {
  h_.servers["s1"].commit_status = absl::UnavailableError("busy");
  h_.servers["s2"].commit_status = absl::UnavailableError("busy");
  ASSERT_THAT(Checkpoint("c1"), IsOk());
  Train(8);
  EXPECT_EQ(Checkpoint("c1")->layers_written(), 4);
  h_.servers["s2"].alive = false;
  Train(8);
  h_.servers["s1"].commit_status = absl::OkStatus();
  Train(3);
  EXPECT_EQ(Checkpoint("c1")->state(), v1::CHECKPOINT_STATE_COMPLETE);
}

TEST_F(CheckpointTest, AnotherServerCommitsWhenTheFirstCannot) {
  h_.servers["s1"].commit_status = absl::UnavailableError("busy");
  ASSERT_THAT(Checkpoint("c1"), IsOk());
  Train(8);
  EXPECT_EQ(Checkpoint("c1")->state(), v1::CHECKPOINT_STATE_COMPLETE);
  EXPECT_EQ(h_.committed.back().server.name(), "s2");
}

TEST_F(CheckpointTest, ARefusedCommitFailsIt) {
  h_.servers["s1"].commit_status =
      absl::FailedPreconditionError("layer 2 is listed twice");
  ASSERT_THAT(Checkpoint("c1"), IsOk());
  Train(8);
  EXPECT_THAT(Checkpoint("c1"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("listed twice")));
}

TEST_F(CheckpointTest, ANewSchedulerGoesOnWithIt) {
  ASSERT_THAT(Checkpoint("c1"), IsOk());
  Train(2);
  h_.Start();
  Train(1);
  EXPECT_EQ(Checkpoint("c1")->step(), 15);
  Train(6);
  EXPECT_EQ(Checkpoint("c1")->state(), v1::CHECKPOINT_STATE_COMPLETE);
}

TEST_F(CheckpointTest, ANewWorldOrSilentRanksFailIt) {
  ASSERT_THAT(Checkpoint("c1"), IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto ready, Rejoin(11));
  EXPECT_THAT(Checkpoint("c1"), StatusIs(absl::StatusCode::kDataLoss,
                                         HasSubstr("world 1 ended")));
  world_ = 2;
  Train(2);
  ASSERT_THAT(Checkpoint("c2"), IsOk());
  h_.Advance(absl::Seconds(10));
  EXPECT_THAT(Checkpoint("c2"), StatusIs(absl::StatusCode::kDataLoss,
                                         HasSubstr("all ranks were gone")));
}

TEST_F(CheckpointTest, LayersMoveBeforeTheCutOrAfterIt) {
  ASSERT_THAT(Checkpoint("c1", 13), IsOk());
  v1::DrainServerRequest drain;
  drain.set_server("s1");
  ASSERT_THAT(h_.core->DrainServer(drain, h_.now), IsOk());
  h_.Pump();
  // They would be at s2 from step 15 on: too late for the cut.
  EXPECT_THAT(h_.JobNamed("j").moving(), IsEmpty());
  Train(6);
  EXPECT_EQ(Checkpoint("c1")->state(), v1::CHECKPOINT_STATE_COMPLETE);
  EXPECT_THAT(h_.JobNamed("j").moving(), SizeIs(2));
  // A cut that is asked for meanwhile lies behind the move.
  const int64_t from_step = h_.JobNamed("j").assignment().owners(0).from_step();
  EXPECT_THAT(Checkpoint("c2", from_step - 1),
              StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::_));
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto answer, Checkpoint("c2"));
  EXPECT_GE(answer.step(), from_step);
  Train(12);
  EXPECT_EQ(Checkpoint("c2")->state(), v1::CHECKPOINT_STATE_COMPLETE);
  EXPECT_THAT(CoreHarness::Owners(h_.JobNamed("j").assignment()), Each("s2"));
}

TEST_F(CheckpointTest, TheNextWorldStartsFromItAndNoLaterOne) {
  ASSERT_THAT(Checkpoint("c1"), IsOk());
  Train(8);
  ASSERT_EQ(Checkpoint("c1")->state(), v1::CHECKPOINT_STATE_COMPLETE);
  ASSERT_THAT(Restore("c1"), IsOk());
  h_.Start();  // The wish is stored.
  h_.Advance(absl::Seconds(1));
  h_.configured.clear();
  // It is of step 15.
  EXPECT_THAT(Rejoin(15), StatusIs(absl::StatusCode::kFailedPrecondition,
                                   AllOf(HasSubstr("step 15"),
                                         HasSubstr("instead of 16"))));
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto ready, Rejoin(16));
  EXPECT_EQ(ready.world().version(), 2);
  ASSERT_THAT(h_.configured, SizeIs(2));
  EXPECT_EQ(h_.configured[0].request.config().restore_checkpoint(), "c1");
  h_.configured.clear();
  KRONSERVE_ASSERT_OK_AND_ASSIGN(ready, Rejoin(17));
  ASSERT_THAT(h_.configured, SizeIs(2));
  EXPECT_EQ(h_.configured[0].request.config().restore_checkpoint(), "");
}

// Refused by a server after a person asked for it, or its ranks.
TEST_F(CheckpointTest, ARestoreWhoseWorldFailedIsStillWantedByALaterScheduler) {
  ASSERT_THAT(Restore("c1"), IsOk());
  h_.servers["s2"].refusal = absl::ResourceExhaustedError("full");
  EXPECT_THAT(Rejoin(16),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("s2")));
  h_.Advance(absl::Seconds(10));  // Its ranks give up.
  h_.servers["s2"].refusal = absl::OkStatus();
  h_.Start();
  h_.Advance(absl::Seconds(10));
  EXPECT_EQ(h_.JobNamed("j").state(), v1::JOB_STATE_IDLE);
  h_.configured.clear();
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto ready, Rejoin(16));
  EXPECT_EQ(ready.state(), v1::JOIN_STATE_READY);
  EXPECT_EQ(ready.world().version(), 3);
  EXPECT_EQ(h_.configured[0].request.config().restore_checkpoint(), "c1");
}

TEST_F(CheckpointTest, ARestoreIsStoredBeforeTheFirstWorld) {
  v1::RestoreJobRequest request;
  request.set_job("k");
  request.set_id("elsewhere");
  const v1::JoinJobRequest one_of_two = Claim("k", 0, 2);
  ASSERT_THAT(h_.Join(one_of_two), IsOk());
  ASSERT_THAT(h_.core->RestoreJob(request, h_.now), IsOk());
  h_.Pump();
  h_.Start();
  h_.Advance(absl::Seconds(1));
  h_.configured.clear();
  h_.JoinAll("k", 2);
  EXPECT_EQ(h_.configured[0].request.config().restore_checkpoint(),
            "elsewhere");
}

TEST_F(CheckpointTest, AJobThatNobodyAskedAnythingOfIsForgottenWithItsRanks) {
  v1::RestoreJobRequest request;
  request.set_job("k");
  request.set_id("elsewhere");
  ASSERT_THAT(h_.Join(Claim("k", 0, 2)), IsOk());
  ASSERT_THAT(h_.core->RestoreJob(request, h_.now), IsOk());
  h_.Advance(absl::Seconds(10));
  EXPECT_EQ(h_.JobNamed("k").state(), v1::JOB_STATE_IDLE);
  request.clear_id();
  ASSERT_THAT(h_.core->RestoreJob(request, h_.now), IsOk());
  h_.Pump();
  h_.Advance(absl::Seconds(1));
  EXPECT_EQ(h_.JobNamed("k").job(), "");
  EXPECT_EQ(h_.store->Load()->count("job/k"), 0u);
}

TEST_F(CheckpointTest, ARestoreCanBeTakenBack) {
  ASSERT_THAT(Restore("elsewhere"), IsOk());
  ASSERT_THAT(Restore(""), IsOk());
  h_.configured.clear();
  ASSERT_THAT(Rejoin(5), IsOk());
  EXPECT_EQ(h_.configured[0].request.config().restore_checkpoint(), "");
}

}  // namespace
}  // namespace kronserve::scheduler
