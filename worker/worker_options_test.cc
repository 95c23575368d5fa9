#include "worker/worker_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"

namespace kronserve::worker {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class WorkerOptionsTest : public ::testing::Test {
 protected:
  absl::Status Parse(const std::vector<std::string>& args) {
    OptionSet set("kronserve-worker", "test");
    AddWorkerOptions(&set, &options_);
    return set.Parse(args);
  }

  // Parses what stands behind the options that every job needs.
  absl::Status ParseJob(std::vector<std::string> args) {
    args.insert(args.begin(), {"--scheduler=localhost:1", "--node=a"});
    return Parse(args);
  }

  WorkerOptions options_;
};

TEST_F(WorkerOptionsTest, DefaultsAreThoseOfTheSession) {
  ASSERT_THAT(ParseJob({}), IsOk());
  EXPECT_EQ(ToJobOptions(options_).SerializeAsString(),
            DefaultJobOptions().SerializeAsString());
  const TrainerOptions trainer = ToTrainerOptions(options_);
  EXPECT_EQ(trainer.lr, 0.1);
  EXPECT_EQ(trainer.settings.damping, StepSettings().damping);
  EXPECT_EQ(trainer.settings.kl_clip, StepSettings().kl_clip);
  EXPECT_FALSE(trainer.target_accuracy.has_value());
  EXPECT_EQ(CollectiveTimeout(options_), absl::Seconds(30));
}

TEST_F(WorkerOptionsTest, EveryWordReachesItsPlace) {
  ASSERT_THAT(ParseJob({"--job=j",
                        "--rank=1",
                        "--world-size=3",
                        "--run-id=r",
                        "--restart-count=2",
                        "--batch=96",
                        "--accumulation=2",
                        "--epochs=4",
                        "--max-steps=50",
                        "--eval-every=10",
                        "--seed=9",
                        "--lr=0.2",
                        "--lr-schedule=cosine",
                        "--damping=0.5",
                        "--factor-decay=0.9",
                        "--kl-clip=0",
                        "--factor-update-steps=3",
                        "--inv-update-steps=6",
                        "--max-staleness=4",
                        "--factor-source=one-rank",
                        "--method=eigen",
                        "--damping-form=exact",
                        "--factor-init=first",
                        "--refresh-schedule=aligned",
                        "--fallback=plain",
                        "--step-budget=500ms",
                        "--target-accuracy=0.8",
                        "--stop-at-target",
                        "--hidden=12,7,3"}),
              IsOk());
  const SessionOptions session = ToSessionOptions(options_);
  EXPECT_EQ(session.scheduler, "localhost:1");
  EXPECT_EQ(session.job, "j");
  EXPECT_EQ(session.run_id, "r");
  EXPECT_EQ(session.restart_count, 2);
  EXPECT_EQ(session.rank, 1);
  EXPECT_EQ(session.world_size, 3);
  EXPECT_EQ(session.node, "a");
  const v1::JobOptions& job = session.job_options;
  EXPECT_EQ(job.factor_update_steps(), 3);
  EXPECT_EQ(job.inv_update_steps(), 6);
  EXPECT_EQ(job.max_staleness(), 4);
  EXPECT_EQ(job.factor_source(), v1::FACTOR_SOURCE_ONE_RANK);
  EXPECT_EQ(job.method(), v1::COMPUTE_METHOD_EIGEN);
  EXPECT_EQ(job.damping_form(), v1::DAMPING_FORM_EXACT);
  EXPECT_EQ(job.factor_init(), v1::FACTOR_INIT_FIRST);
  EXPECT_EQ(job.refresh_schedule(), v1::REFRESH_SCHEDULE_ALIGNED);
  EXPECT_EQ(job.fallback(), v1::FALLBACK_KIND_PLAIN);
  EXPECT_EQ(job.step_budget_ms(), 500);
  EXPECT_EQ(job.round_deadline_ms(), 250);
  const TrainerOptions trainer = ToTrainerOptions(options_);
  EXPECT_EQ(trainer.batch, 96);
  EXPECT_EQ(trainer.accumulation, 2);
  EXPECT_EQ(trainer.epochs, 4);
  EXPECT_EQ(trainer.max_steps, 50);
  EXPECT_EQ(trainer.eval_every, 10);
  EXPECT_EQ(trainer.seed, 9u);
  EXPECT_EQ(trainer.lr, 0.2);
  EXPECT_TRUE(trainer.cosine);
  EXPECT_EQ(trainer.settings.damping, 0.5);
  EXPECT_EQ(trainer.settings.factor_decay, 0.9);
  EXPECT_FALSE(trainer.settings.kl_clip.has_value());
  EXPECT_EQ(trainer.target_accuracy, 0.8);
  EXPECT_TRUE(trainer.stop_at_target);
  EXPECT_THAT(HiddenSizes(options_), ElementsAre(12, 7, 3));
}

TEST_F(WorkerOptionsTest, DeterministicIsSynchronous) {
  ASSERT_THAT(ParseJob({"--deterministic"}), IsOk());
  const v1::JobOptions job = ToJobOptions(options_);
  EXPECT_TRUE(job.deterministic());
  EXPECT_EQ(job.max_staleness(), 0);
  EXPECT_EQ(job.round_policy(), v1::ROUND_POLICY_WAIT);
  EXPECT_EQ(job.step_budget_ms(), 60000);
  EXPECT_EQ(CollectiveTimeout(options_), absl::Seconds(240));
}

TEST_F(WorkerOptionsTest, OneRankOfSgdOrAdamNeedsNoScheduler) {
  ASSERT_THAT(Parse({"--optimizer=adam"}), IsOk());
  EXPECT_FALSE(UsesJob(options_));
  EXPECT_EQ(LearningRate(options_), 0.001);
}

TEST_F(WorkerOptionsTest, EveryFaultIsNamedAtOnce) {
  EXPECT_THAT(
      Parse({"--rank=2", "--world-size=2", "--batch=3", "--accumulation=2",
             "--hidden=12,x", "--step-budget=soon", "--damping-form=exact",
             "--stop-at-target", "--nonsense=1", "--optimizer=lbfgs"}),
      StatusIs(
          kInvalid,
          AllOf(HasSubstr("rank 2 is not below world-size 2"),
                HasSubstr("scheduler is needed"), HasSubstr("batch 3 is too"),
                HasSubstr("hidden '12,x'"), HasSubstr("step-budget 'soon'"),
                HasSubstr("damping-form exact needs method eigen"),
                HasSubstr("stop-at-target needs"), HasSubstr("nonsense"),
                HasSubstr("lbfgs"))));
}

TEST_F(WorkerOptionsTest, TimesThatCannotHoldTogetherAreRefused) {
  EXPECT_THAT(
      ParseJob({"--collective-timeout=7s"}),
      StatusIs(kInvalid, HasSubstr("7s is below 4 step budgets of 2s")));
  EXPECT_THAT(ParseJob({"--collective-timeout=-7s"}),
              StatusIs(kInvalid, HasSubstr("collective-timeout '-7s'")));
  EXPECT_THAT(ParseJob({"--deterministic", "--max-staleness=3",
                        "--collective-timeout=auto"}),
              StatusIs(kInvalid, HasSubstr("max-staleness 0, not 3")));
}

TEST_F(WorkerOptionsTest, ElasticRanksNeedAllOfThemUnlessToldOtherwise) {
  ASSERT_THAT(ParseJob({"--world-size=3"}), IsOk());
  EXPECT_EQ(ToSessionOptions(options_).min_ranks, 0);
  ASSERT_THAT(ParseJob({"--world-size=3", "--elastic"}), IsOk());
  EXPECT_EQ(ToSessionOptions(options_).min_ranks, 3);
  ASSERT_THAT(ParseJob({"--world-size=3", "--elastic", "--min-ranks=2"}),
              IsOk());
  EXPECT_EQ(ToSessionOptions(options_).min_ranks, 2);
}

TEST_F(WorkerOptionsTest, ElasticFaultsAreNamed) {
  EXPECT_THAT(ParseJob({"--min-ranks=1"}),
              StatusIs(kInvalid, HasSubstr("min-ranks needs elastic")));
  EXPECT_THAT(
      ParseJob({"--elastic", "--min-ranks=3"}),
      StatusIs(kInvalid, HasSubstr("min-ranks 3 is above world-size 1")));
  EXPECT_THAT(ParseJob({"--elastic", "--min-ranks=1", "--optimizer=sgd"}),
              StatusIs(kInvalid, HasSubstr("elastic needs a job")));
}

TEST_F(WorkerOptionsTest, CheckpointsNeedADirectoryAndKfac) {
  ASSERT_THAT(ParseJob({"--checkpoint-every=10", "--checkpoint-dir=/c",
                        "--resume=step40"}),
              IsOk());
  EXPECT_EQ(ToSessionOptions(options_).restore_checkpoint, "step40");
  EXPECT_THAT(ParseJob({"--resume=a", "--checkpoint-dir="}),
              StatusIs(kInvalid, HasSubstr("need checkpoint-dir")));
  EXPECT_THAT(ParseJob({"--checkpoint-every=10", "--optimizer=sgd",
                        "--checkpoint-dir=/c"}),
              StatusIs(kInvalid, HasSubstr("not sgd")));
}

TEST_F(WorkerOptionsTest, ConvnetsNeedTwoChannelNumbers) {
  EXPECT_THAT(ParseJob({"--model=convnet", "--channels=4,8"}), IsOk());
  EXPECT_THAT(ConvChannels(options_), ElementsAre(4, 8));
  EXPECT_THAT(ParseJob({"--model=convnet", "--channels=4"}),
              StatusIs(kInvalid, HasSubstr("channels '4'")));
}

TEST_F(WorkerOptionsTest, TakesTorchrunsVariablesUnlessAFlagIsGiven) {
  const std::map<std::string, const char*> variables = {
      {"RANK", "1"},
      {"WORLD_SIZE", "4"},
      {"TORCHELASTIC_RUN_ID", "abc"},
      {"TORCHELASTIC_RESTART_COUNT", "3"}};
  ReadEnvironment(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second;
      },
      &options_);
  ASSERT_THAT(ParseJob({"--rank=2"}), IsOk());
  EXPECT_EQ(options_.rank, 2);
  EXPECT_EQ(options_.world_size, 4);
  EXPECT_EQ(options_.run_id, "abc");
  EXPECT_EQ(options_.restart_count, 3);
}

TEST_F(WorkerOptionsTest, AVariableThatIsNoNumberIsAFault) {
  ReadEnvironment(
      [](const char* name) {
        return std::string(name) == "RANK" ? "first" : nullptr;
      },
      &options_);
  EXPECT_THAT(ParseJob({}), StatusIs(kInvalid, HasSubstr("RANK='first'")));
}

}  // namespace
}  // namespace kronserve::worker
