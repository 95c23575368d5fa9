// The training loop with a session: what it feeds it, and what it does when a
// session breaks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "worker/training/testing/trainer_parts.h"
#include "worker/training/trainer.h"

namespace kronserve::worker {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using testing::DigitsOptions;
using ::testing::ElementsAre;
using testing::FakeSession;
using ::testing::HasSubstr;
using testing::LargestDifference;
using testing::Rank;
using testing::Recorder;
using ::testing::SizeIs;

// A session that records what it is fed, halves gradients, and lets layer 1
// fall back at steps 1 and 2.
class RecordingSession final : public FakeSession {
 public:
  bool NeedsStatistics(int64_t step, int layer) const override {
    return step % 2 == 0 && layer == 0;
  }
  absl::Status AccumulateLinear(int layer,
                                linalg::ConstMatrixView<float> inputs,
                                linalg::ConstMatrixView<float> hooks,
                                int64_t loss_rows) override {
    EXPECT_EQ(layer, 0);
    EXPECT_EQ(inputs.rows, loss_rows);
    EXPECT_EQ(inputs.cols, 64);
    EXPECT_EQ(hooks.rows, loss_rows);
    EXPECT_EQ(hooks.cols, 48);
    rows_.push_back(loss_rows);
    return absl::OkStatus();
  }
  absl::StatusOr<StepResult> Step(
      int64_t step, const StepSettings& settings,
      const std::vector<linalg::MatrixView<float>>& gradients) override {
    rates_.push_back(settings.lr);
    for (const auto& gradient : gradients) {
      for (int64_t i = 0; i < gradient.size(); ++i) gradient.data[i] *= 0.5f;
    }
    StepResult result;
    result.nu = 0.5;
    result.epoch = 3;
    result.waited = absl::Milliseconds(10);
    result.layers.resize(2);
    result.layers[0].preconditioned = true;
    result.layers[1].preconditioned = step != 1 && step != 2;
    result.layers[1].reason = v1::FALLBACK_REASON_UNREACHABLE;
    result.layers[1].message = "server s1 is suspect";
    result.fallbacks = result.layers[1].preconditioned ? 0 : 1;
    return result;
  }

  std::vector<int64_t> rows_;
  std::vector<double> rates_;
};

TEST(TrainerTest, FeedsTheSessionPerMicroBatchAndUsesItsGradients) {
  RecordingSession session;
  Rank rank;
  Recorder recorder;
  TrainerParts parts = rank.parts();
  parts.session = &session;
  parts.observer = &recorder;
  TrainerOptions options = DigitsOptions();
  options.max_steps = 4;
  options.accumulation = 2;
  options.batch = 65;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto summary, Train(options, parts));
  EXPECT_THAT(session.rows_, ElementsAre(32, 33, 32, 33));  // Steps 0 and 2.
  EXPECT_THAT(session.rates_, ElementsAre(0.05, 0.05, 0.05, 0.05));
  EXPECT_EQ(summary.layers, 2);
  EXPECT_EQ(summary.layers_preconditioned, 2);
  EXPECT_EQ(summary.fallback_steps, 2);
  EXPECT_EQ(summary.fallen_back.at("fc2"), 2);
  EXPECT_EQ(summary.waited, absl::Milliseconds(40));
  EXPECT_EQ(recorder.steps[0].assignment_epoch, 3u);
  EXPECT_EQ(recorder.steps[0].nu, 0.5);
  // Once when it starts, once when it ends.
  ASSERT_THAT(recorder.fallbacks, SizeIs(2));
  EXPECT_EQ(recorder.fallbacks[0].step, 1);
  ASSERT_THAT(recorder.fallbacks[0].layers, SizeIs(1));
  EXPECT_EQ(recorder.fallbacks[0].layers[0].name, "fc2");
  EXPECT_EQ(recorder.fallbacks[0].layers[0].reason, "unreachable");
  EXPECT_EQ(recorder.fallbacks[0].layers[0].message, "server s1 is suspect");
  EXPECT_EQ(recorder.fallbacks[1].step, 3);
  EXPECT_THAT(recorder.fallbacks[1].layers, SizeIs(0));

  // Halved gradients are half the rate.
  Rank plain;
  options.lr = 0.025;
  plain.optimizer = CreateSgd<float>({/*momentum=*/0.9, /*weight_decay=*/0});
  Rank halved;
  halved.optimizer = CreateSgd<float>({/*momentum=*/0.9, /*weight_decay=*/0});
  ASSERT_THAT(Train(options, plain.parts()), IsOk());
  parts = halved.parts();
  parts.session = &session;
  options.lr = 0.05;
  ASSERT_THAT(Train(options, parts), IsOk());
  EXPECT_LT(LargestDifference(plain.model, halved.model), 1e-6);
}

TEST(TrainerTest, ASessionWithoutLayersOnlyHearsOfTheSteps) {
  // Takes no gradients and no statistics.
  struct Listener final : FakeSession {
    bool NeedsStatistics(int64_t, int) const override { return true; }
    absl::StatusOr<StepResult> Step(
        int64_t step, const StepSettings&,
        const std::vector<linalg::MatrixView<float>>& gradients) override {
      EXPECT_THAT(gradients, SizeIs(0));
      steps.push_back(step);
      return StepResult();
    }
    std::vector<int64_t> steps;
  } session;
  Rank rank;
  TrainerParts parts = rank.parts();
  parts.session = &session;
  parts.precondition = false;
  TrainerOptions options = DigitsOptions();
  options.first_step = 1;
  options.max_steps = 4;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto summary, Train(options, parts));
  EXPECT_THAT(session.steps, ElementsAre(1, 2, 3));
  EXPECT_EQ(summary.layers, 0);
  EXPECT_EQ(summary.fallback_steps, 0);
}

// Ends with `left` steps left, as if the job group had broken.
struct BreakingSession final : FakeSession {
  absl::StatusOr<StepResult> Step(
      int64_t, const StepSettings&,
      const std::vector<linalg::MatrixView<float>>&) override {
    if (left-- == 0) return absl::UnavailableError("rank 1 left");
    return StepResult();
  }

  int left = 0;
};

TEST(TrainerTest, ARunThatBrokeGoesOnWithTheStepThatWasNotFinished) {
  TrainerOptions options = DigitsOptions();
  options.max_steps = 9;
  options.eval_every = 3;
  options.hash_log = ::testing::TempDir() + "/trainer_test_progress";
  Rank whole;
  ASSERT_THAT(Train(options, whole.parts()), IsOk());

  Rank rank;
  TrainingProgress progress;
  BreakingSession session;
  session.left = 6;
  Recorder recorder;
  TrainerParts parts = rank.parts();
  parts.session = &session;
  parts.precondition = false;
  parts.progress = &progress;
  parts.observer = &recorder;
  EXPECT_THAT(Train(options, parts),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("step 6")));
  EXPECT_EQ(progress.next_step, 6);
  EXPECT_TRUE(progress.begun);

  // The evaluation after step 5 may have been cut off on another rank.
  session.left = 9;
  options.first_step = progress.next_step;
  options.repeat_evaluation = true;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto summary, Train(options, parts));
  EXPECT_EQ(summary.steps, 9);
  EXPECT_EQ(LargestDifference(rank.model, whole.model), 0);
  std::vector<int64_t> evaluated;
  for (const EvalEvent& event : recorder.evals) evaluated.push_back(event.step);
  EXPECT_THAT(evaluated, ElementsAre(3, 6, 6, 9));
  // One line per step, not only of the second call.
  std::ifstream log(options.hash_log);
  int lines = 0;
  for (std::string line; std::getline(log, line);) ++lines;
  EXPECT_EQ(lines, 9);
  std::remove(options.hash_log.c_str());
}

TEST(TrainerTest, AStepThatIsRepeatedCountsOnce) {
  TrainingProgress progress;
  progress.begun = true;
  progress.next_step = 8;
  progress.summary.steps = 8;
  progress.GoTo(7);
  EXPECT_EQ(progress.next_step, 7);
  EXPECT_EQ(progress.summary.steps, 7);
}

}  // namespace
}  // namespace kronserve::worker
