// Layers that come from checkpoints and go to them: PROTOCOL.md 6 and 10.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "server/testing/core_driver.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::SampleLayer;
using ::kronserve::testing::StatusIs;
using ::testing::_;
using ::testing::AllOf;
using testing::AsyncOptions;
using ::testing::Contains;
using testing::CoreDriver;
using testing::DefaultCoreOptions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakeFactors;
using testing::MakeJob;
using testing::MakeTensor;
using testing::Place;
using ::testing::SizeIs;
using testing::SyncOptions;

const v1::LayerSpec kLayer = SampleLayer("fc1", 1, 2);
const Tensor kGradient = MakeTensor({12, -24});

CoreOptions WithCheckpoints() {
  CoreOptions options = DefaultCoreOptions();
  options.has_checkpoints = true;
  options.checkpoint_interval = absl::Seconds(10);
  return options;
}

class CheckpointsTest : public ::testing::Test {
 protected:
  void Start(const v1::JobOptions& options) {
    config_ = MakeJob({kLayer}, 1, options);
    ASSERT_THAT(driver_.Configure(config_), IsOk());
    driver_.FinishRestore(Wanted(), std::nullopt);
  }

  // The only restore that is wanted.
  RestoreTask Wanted() {
    const std::vector<RestoreTask> tasks = driver_.executor.TakeRestores();
    EXPECT_THAT(tasks, SizeIs(1));
    return tasks.empty() ? RestoreTask() : tasks[0];
  }

  uint64_t Step(int64_t step, float a = 2) {
    EXPECT_THAT(driver_.Push(0, step, MakeFactors(0, kLayer, a, 1, 4)), IsOk());
    return driver_.Ask(0, step, {0, 1, 2, kGradient});
  }

  const v1::LayerReply& ReplyTo(uint64_t request) {
    const Reply* reply = driver_.executor.Find(request);
    EXPECT_NE(reply, nullptr);
    static const v1::LayerReply none;
    return reply == nullptr ? none : reply->reply;
  }

  v1::LayerRecovery Recovery() {
    const auto held = driver_.core.Held();
    EXPECT_EQ(held[0].recoveries_size(), 1);
    return held[0].recoveries_size() == 1 ? held[0].recoveries(0)
                                          : v1::LayerRecovery();
  }

  const LayerState& layer() { return *driver_.core.FindLayerState("job", 0); }

  absl::StatusOr<v1::WriteCheckpointResponse> Cut(const std::string& id,
                                                  int64_t step,
                                                  uint64_t epoch = 1) {
    v1::WriteCheckpointRequest request;
    request.set_term(1);
    request.set_job("job");
    request.set_world_version(1);
    request.set_epoch(epoch);
    request.set_id(id);
    request.set_step(step);
    Effects effects;
    auto response =
        driver_.core.WriteCheckpoint(request, driver_.now, &effects);
    driver_.executor.Run(std::move(effects), driver_.now);
    return response;
  }

  // What an owner wrote in the background after steps 0 to `last` with A = 2 I.
  Restored Written(int64_t last) {
    CoreDriver writer(WithCheckpoints());
    EXPECT_THAT(writer.Configure(MakeJob({kLayer}, 1, SyncOptions())), IsOk());
    writer.FinishRestore(writer.executor.TakeRestores()[0], std::nullopt);
    for (int64_t step = 0; step <= last; ++step) {
      EXPECT_THAT(writer.Push(0, step, MakeFactors(0, kLayer, 2, 1, 4)),
                  IsOk());
      EXPECT_THAT(writer.Commit(0, step), IsOk());
    }
    Effects effects;
    writer.core.CheckpointAll(&effects);
    Restored restored;
    restored.contents = effects.checkpoints.at(0).contents;
    restored.source = v1::RECOVERY_SOURCE_BACKGROUND_CHECKPOINT;
    return restored;
  }

  v1::ConfigureJobRequest config_;
  CoreDriver driver_{WithCheckpoints()};
};

TEST_F(CheckpointsTest, NewJobBeginsWithTheNextFactors) {
  config_ = MakeJob({kLayer}, 1, SyncOptions());
  ASSERT_THAT(driver_.Configure(config_), IsOk());
  EXPECT_EQ(driver_.PhaseOf("fc1"), "awaited");
  const uint64_t request = Step(0);
  EXPECT_EQ(driver_.executor.Find(request), nullptr);
  driver_.FinishRestore(Wanted(), std::nullopt);
  EXPECT_EQ(driver_.PhaseOf("fc1"), "owned");
  EXPECT_EQ(ReplyTo(request).version(), 1);
  EXPECT_EQ(Recovery().source(), v1::RECOVERY_SOURCE_FACTORS);
  EXPECT_EQ(Recovery().restored_through(), -1);
  EXPECT_EQ(Recovery().message(), "");
}

TEST_F(CheckpointsTest, LostLayerComesBackFromItsCheckpoint) {
  config_ = MakeJob({kLayer}, 1, SyncOptions());
  Place(&config_, 0, "s0", 5);
  ASSERT_THAT(driver_.Configure(config_), IsOk());
  driver_.FinishRestore(Wanted(), Written(2));
  EXPECT_EQ(layer().updates(), 3);
  EXPECT_EQ(driver_.counters().layers_restored(), 1);
  EXPECT_EQ(Recovery().source(), v1::RECOVERY_SOURCE_BACKGROUND_CHECKPOINT);
  EXPECT_EQ(Recovery().restored_through(), 2);  // Steps 3 and 4 are lost.
  EXPECT_EQ(Recovery().from_step(), 5);
  EXPECT_EQ(Recovery().epoch(), 2u);
  EXPECT_EQ(ReplyTo(Step(5, 6)).version(), 4);
  EXPECT_THAT(*layer().averages().a, ElementsAre(4, 0, 4));
}

// CASES H42: the client is at step 100, the state at 60.
TEST_F(CheckpointsTest, RestoredStateThatIsOlderThanTheClientSaysItsAge) {
  v1::JobOptions options = AsyncOptions(1);
  options.set_factor_update_steps(10);
  options.set_inv_update_steps(10);
  config_ = MakeJob({kLayer}, 1, options);
  Place(&config_, 0, "s0", 101);
  ASSERT_THAT(driver_.Configure(config_), IsOk());
  Restored restored = Written(0);
  restored.contents.meta.set_factor_step(60);
  restored.contents.meta.set_closed_through(60);
  restored.contents.meta.mutable_published()->set_factor_step(60);
  auto published = std::make_shared<Published>(*restored.contents.published);
  published->factor_step = 60;
  restored.contents.published = published;
  driver_.FinishRestore(Wanted(), restored);
  EXPECT_EQ(Recovery().restored_through(), 60);
  const uint64_t stale = driver_.Ask(0, 101, {0, 1, 2, kGradient});
  EXPECT_EQ(ReplyTo(stale).outcome(), v1::LAYER_OUTCOME_PRECONDITIONED);
  EXPECT_EQ(ReplyTo(stale).age(), 41);
  Step(110);
  const uint64_t fresh = driver_.Ask(0, 111, {0, 1, 2, kGradient});
  EXPECT_EQ(ReplyTo(fresh).age(), 1);
}

// CASES H41: no factors ever came for a layer; its checkpoint is one too.
TEST_F(CheckpointsTest, LayerThatNeverHadFactorsIsRestoredAsSuch) {
  config_ = MakeJob({kLayer}, 1, SyncOptions());
  Place(&config_, 0, "s0", 11);
  ASSERT_THAT(driver_.Configure(config_), IsOk());
  Restored restored;
  restored.source = v1::RECOVERY_SOURCE_JOB_CHECKPOINT;
  restored.contents.meta.set_world_version(1);
  restored.contents.meta.set_closed_through(10);
  restored.contents.meta.set_first_step(-1);
  restored.contents.meta.set_factor_step(-1);
  restored.contents.meta.set_failed_for(-1);
  driver_.FinishRestore(Wanted(), restored);
  // Step 11 without it, step 12 with it.
  const uint64_t without = driver_.Ask(0, 11, {0, 1, 2, kGradient});
  driver_.Advance(absl::Seconds(2));
  EXPECT_EQ(ReplyTo(without).outcome(), v1::LAYER_OUTCOME_FALLBACK);
  EXPECT_EQ(ReplyTo(Step(12)).version(), 1);
}

TEST_F(CheckpointsTest, UnreadableCheckpointIsNamed) {
  config_ = MakeJob({kLayer}, 1, SyncOptions());
  Place(&config_, 0, "s0", 5);
  ASSERT_THAT(driver_.Configure(config_), IsOk());
  driver_.FinishRestore(Wanted(),
                        absl::FailedPreconditionError("file x: damaged"));
  EXPECT_EQ(driver_.PhaseOf("fc1"), "owned");
  EXPECT_EQ(Recovery().source(), v1::RECOVERY_SOURCE_FACTORS);
  EXPECT_EQ(Recovery().message(), "file x: damaged");
  EXPECT_THAT(driver_.executor.warnings(),
              Contains(AllOf(HasSubstr("fc1"), HasSubstr("file x: damaged"))));
}

TEST_F(CheckpointsTest, StateOfAWorldThatWasAheadIsKeptAndSaid) {
  config_ = MakeJob({kLayer}, 1, SyncOptions());
  config_.mutable_config()->mutable_world()->set_start_step(1);
  Place(&config_, 0, "s0", 1);
  ASSERT_THAT(driver_.Configure(config_), IsOk());
  Restored restored = Written(4);
  restored.contents.meta.set_world_version(7);
  driver_.FinishRestore(Wanted(), restored);
  EXPECT_THAT(
      driver_.executor.warnings(),
      Contains(AllOf(HasSubstr("averages of step 4"), HasSubstr("job at 1"))));
  EXPECT_EQ(ReplyTo(Step(1)).version(), 6);
}

TEST_F(CheckpointsTest, RestoreOfAnOlderPlacementIsIgnored) {
  config_ = MakeJob({kLayer}, 1, SyncOptions());
  ASSERT_THAT(driver_.Configure(config_), IsOk());
  const RestoreTask late = Wanted();
  Place(&config_, 0, "s1", 3);
  ASSERT_THAT(driver_.Configure(config_), IsOk());
  Place(&config_, 0, "s0", 5);
  ASSERT_THAT(driver_.Configure(config_), IsOk());
  driver_.FinishRestore(late, Written(2));
  EXPECT_EQ(driver_.PhaseOf("fc1"), "awaited");
  driver_.FinishRestore(Wanted(), std::nullopt);
  EXPECT_EQ(Recovery().message(), "there is no checkpoint of it");
}

TEST_F(CheckpointsTest, WorldThatStartsFromAJobCheckpointKeepsNothing) {
  Start(SyncOptions());
  Step(0);
  v1::JobConfig* config = config_.mutable_config();
  config->mutable_world()->set_version(2);
  config->mutable_world()->set_start_step(1);
  config->set_restore_checkpoint("good");
  Place(&config_, 0, "s0", 1);
  ASSERT_THAT(driver_.Configure(config_), IsOk());
  EXPECT_EQ(layer().updates(), 0);
  const RestoreTask task = Wanted();
  EXPECT_EQ(task.config->restore_checkpoint(), "good");
  Restored restored = Written(0);
  restored.source = v1::RECOVERY_SOURCE_JOB_CHECKPOINT;
  driver_.FinishRestore(task, restored);
  EXPECT_EQ(layer().updates(), 1);
  EXPECT_EQ(Recovery().source(), v1::RECOVERY_SOURCE_JOB_CHECKPOINT);
}

TEST_F(CheckpointsTest, BackgroundCheckpointsKeepTheirInterval) {
  Start(SyncOptions());
  EXPECT_THAT(driver_.executor.TakeCheckpoints(), IsEmpty());
  Step(0);
  const auto first = driver_.executor.TakeCheckpoints();
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_EQ(first[0].checkpoint, "");
  EXPECT_EQ(first[0].contents.meta.updates(), 1);
  EXPECT_EQ(first[0].contents.meta.published().version(), 1);
  driver_.FinishCheckpoint(first[0], v1::CheckpointFile());
  Step(1);
  EXPECT_THAT(driver_.executor.TakeCheckpoints(), IsEmpty());
  EXPECT_EQ(driver_.core.NextDeadline(), driver_.now + absl::Seconds(10));
  driver_.Advance(absl::Seconds(10));
  EXPECT_THAT(driver_.executor.TakeCheckpoints(), SizeIs(1));
  EXPECT_EQ(driver_.counters().checkpoints_written(), 1);
}

TEST_F(CheckpointsTest, LayerWithoutChangesIsNotWritten) {
  Start(SyncOptions());
  Step(0);
  driver_.FinishCheckpoint(driver_.executor.TakeCheckpoints()[0],
                           v1::CheckpointFile());
  driver_.Advance(absl::Minutes(1));
  EXPECT_THAT(driver_.executor.TakeCheckpoints(), IsEmpty());
  EXPECT_EQ(driver_.core.NextDeadline(), absl::InfiniteFuture());
}

TEST_F(CheckpointsTest, FailedCheckpointIsNamedAndTriedAgain) {
  Start(SyncOptions());
  Step(0);
  driver_.FinishCheckpoint(driver_.executor.TakeCheckpoints()[0],
                           absl::ResourceExhaustedError("disk full"));
  EXPECT_EQ(driver_.counters().checkpoints_failed(), 1);
  EXPECT_THAT(driver_.executor.warnings(), Contains(HasSubstr("disk full")));
  EXPECT_THAT(driver_.executor.TakeCheckpoints(), IsEmpty());
  driver_.Advance(absl::Seconds(10));
  EXPECT_THAT(driver_.executor.TakeCheckpoints(), SizeIs(1));
}

TEST_F(CheckpointsTest, LayerWhoseRefreshesNeverRestIsWrittenToo) {
  Start(AsyncOptions(1));
  driver_.executor.HoldRefreshes(true);
  Step(0);
  EXPECT_THAT(driver_.executor.TakeCheckpoints(), IsEmpty());
  driver_.Advance(absl::Seconds(10));
  const auto tasks = driver_.executor.TakeCheckpoints();
  ASSERT_THAT(tasks, SizeIs(1));
  EXPECT_EQ(tasks[0].contents.meta.updates(), 1);
  EXPECT_FALSE(tasks[0].contents.meta.has_published());
}

TEST_F(CheckpointsTest, FinishedJobIsForgotten) {
  Start(SyncOptions());
  ASSERT_THAT(driver_.Drop(1), IsOk());
  const auto forgets = driver_.executor.TakeForgets();
  ASSERT_THAT(forgets, SizeIs(1));
  EXPECT_EQ(forgets[0].job, "job");
  EXPECT_EQ(forgets[0].run_id, "run");
}

TEST_F(CheckpointsTest, ExpiredJobIsWrittenAndNotForgotten) {
  Start(SyncOptions());
  Step(0);
  driver_.executor.TakeCheckpoints();
  Step(1);
  ASSERT_THAT(driver_.Drop(1, 1, /*finished=*/false), IsOk());
  const auto tasks = driver_.executor.TakeCheckpoints();
  ASSERT_THAT(tasks, SizeIs(1));
  EXPECT_EQ(tasks[0].contents.meta.updates(), 2);
  EXPECT_THAT(driver_.executor.TakeForgets(), IsEmpty());
  EXPECT_EQ(driver_.PhaseOf("fc1"), "none");
}

TEST_F(CheckpointsTest, AnotherRunForgetsTheOneBefore) {
  Start(SyncOptions());
  v1::World* world = config_.mutable_config()->mutable_world();
  world->set_version(2);
  world->set_run_id("again");
  Place(&config_, 0, "s0", 0);
  ASSERT_THAT(driver_.Configure(config_), IsOk());
  const auto forgets = driver_.executor.TakeForgets();
  ASSERT_THAT(forgets, SizeIs(1));
  EXPECT_EQ(forgets[0].run_id, "run");
}

TEST_F(CheckpointsTest, JobCheckpointIsCutBeforeALaterRoundIsMerged) {
  Start(SyncOptions());
  Step(0);
  driver_.executor.TakeCheckpoints();
  const auto asked = Cut("a", 1);
  ASSERT_THAT(asked, IsOk());
  EXPECT_EQ(asked->layers_left(), 1);
  driver_.executor.HoldMerges(true);
  EXPECT_THAT(driver_.Push(0, 1, MakeFactors(0, kLayer, 6, 1, 4)), IsOk());
  ASSERT_THAT(driver_.Commit(0, 1), IsOk());
  EXPECT_THAT(driver_.Push(0, 2, MakeFactors(0, kLayer, 8, 1, 4)), IsOk());
  ASSERT_THAT(driver_.Commit(0, 2), IsOk());
  EXPECT_THAT(driver_.executor.TakeCheckpoints(), IsEmpty());
  driver_.executor.HoldMerges(false);
  driver_.Advance(absl::ZeroDuration());
  const auto tasks = driver_.executor.TakeCheckpoints();
  ASSERT_THAT(tasks, SizeIs(1));
  EXPECT_EQ(tasks[0].checkpoint, "a");
  EXPECT_EQ(tasks[0].contents.meta.closed_through(), 1);
  EXPECT_EQ(tasks[0].contents.meta.updates(), 2);
  EXPECT_EQ(tasks[0].contents.meta.published().version(), 2);
  EXPECT_THAT(*tasks[0].contents.averages.a, ElementsAre(4, 0, 4));
  // Then the round of step 2 goes in.
  EXPECT_EQ(layer().updates(), 3);

  v1::CheckpointFile file;
  file.set_layer(0);
  file.set_path("0");
  driver_.FinishCheckpoint(tasks[0], file);
  const auto complete = Cut("a", 1);
  ASSERT_THAT(complete, IsOk());
  EXPECT_EQ(complete->layers_left(), 0);
  ASSERT_EQ(complete->files_size(), 1);
  EXPECT_EQ(complete->files(0).path(), "0");
  EXPECT_THAT(driver_.executor.TakeCheckpoints(), IsEmpty());
}

TEST_F(CheckpointsTest, CutOfTheStepThatWasJustAnsweredNeedsNoFurtherStep) {
  Start(SyncOptions());
  Step(0);
  driver_.executor.TakeCheckpoints();
  ASSERT_THAT(Cut("a", 0), IsOk());
  const auto tasks = driver_.executor.TakeCheckpoints();
  ASSERT_THAT(tasks, SizeIs(1));
  EXPECT_EQ(tasks[0].contents.meta.closed_through(), 0);
}

TEST_F(CheckpointsTest, FaultsOfAJobCheckpoint) {
  Start(SyncOptions());
  Step(0);
  Step(1);
  EXPECT_THAT(Cut("a", 0), StatusIs(absl::StatusCode::kFailedPrecondition,
                                    AllOf(HasSubstr("fc1"), HasSubstr("'a'"))));
  for (const int64_t step : {int64_t{-1}, (int64_t{1} << 62) + 1}) {
    EXPECT_THAT(Cut("a", step), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("ends at step")));
  }
  EXPECT_THAT(Cut("a", 5, 9), StatusIs(absl::StatusCode::kUnavailable, _));
  Place(&config_, 0, "s0", 0);
  ASSERT_THAT(driver_.Configure(config_), IsOk());
  EXPECT_THAT(Cut("a", 5, 1), StatusIs(absl::StatusCode::kAborted, _));
  driver_.executor.TakeCheckpoints();
  ASSERT_THAT(Cut("b", 1, 2), IsOk());
  driver_.FinishCheckpoint(driver_.executor.TakeCheckpoints().at(0),
                           absl::ResourceExhaustedError("disk full"));
  EXPECT_THAT(Cut("b", 1, 2),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("disk full")));
  ASSERT_THAT(driver_.Drop(1), IsOk());
  EXPECT_THAT(Cut("b", 1, 2), StatusIs(absl::StatusCode::kNotFound, _));
}

TEST_F(CheckpointsTest, NoDirectoryNoJobCheckpoint) {
  CoreDriver none;
  ASSERT_THAT(none.Configure(MakeJob({kLayer}, 1, SyncOptions())), IsOk());
  v1::WriteCheckpointRequest request;
  request.set_term(1);
  request.set_job("job");
  request.set_world_version(1);
  request.set_epoch(1);
  Effects effects;
  EXPECT_THAT(none.core.WriteCheckpoint(request, none.now, &effects),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("no checkpoint directory")));
  v1::CommitCheckpointRequest commit;
  commit.set_term(1);
  commit.set_job("job");
  commit.set_world_version(1);
  EXPECT_THAT(none.core.BeginCommit(commit),
              StatusIs(absl::StatusCode::kFailedPrecondition, _));
}

TEST_F(CheckpointsTest, ManifestNamesTheJob) {
  Start(SyncOptions());
  v1::CommitCheckpointRequest request;
  request.set_term(1);
  request.set_job("job");
  request.set_world_version(1);
  request.set_id("a");
  request.set_step(4);
  request.add_files()->set_path("0");
  const auto manifest = driver_.core.BeginCommit(request);
  ASSERT_THAT(manifest, IsOk());
  EXPECT_EQ(manifest->id(), "a");
  EXPECT_EQ(manifest->step(), 4);
  EXPECT_EQ(manifest->run_id(), "run");
  EXPECT_EQ(manifest->layers_size(), 1);
  EXPECT_EQ(manifest->files_size(), 1);
  request.set_world_version(2);
  EXPECT_THAT(driver_.core.BeginCommit(request),
              StatusIs(absl::StatusCode::kAborted, _));
  request.set_job("other");
  EXPECT_THAT(driver_.core.BeginCommit(request),
              StatusIs(absl::StatusCode::kNotFound, _));
}

}  // namespace
}  // namespace kronserve::server
