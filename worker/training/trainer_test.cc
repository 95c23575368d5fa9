// The training loop on digits: alone, over ranks, with a session, and when
// things go wrong.

#include "worker/training/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "linalg/backend.h"
#include "worker/collective/loopback/factory.h"
#include "worker/training/evaluation.h"
#include "worker/training/replica_check.h"

namespace kronserve::worker {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using End = TrainingSummary::End;

const Dataset& Digits() {
  static const auto* const digits =
      new Dataset(*LoadDataset("digits", /*data_dir=*/""));
  return *digits;
}

linalg::DenseKernels<float>* Kernels() {
  static auto* const tools = new linalg::LinearAlgebra<float>(
      *linalg::CreateLinearAlgebra<float>(linalg::Device::kCpu));
  return tools->kernels.get();
}

TrainerOptions DigitsOptions() {
  TrainerOptions options;
  options.batch = 64;
  options.epochs = 12;
  options.lr = 0.05;
  return options;
}

// One rank's model and optimizer.
struct Rank {
  Model<float> model =
      CreateMlp(Kernels(), {64, 48, 10}, ActivationKind::kRelu, /*seed=*/5);
  std::unique_ptr<Optimizer<float>> optimizer =
      CreateSgd<float>({/*momentum=*/0.9, /*weight_decay=*/1e-4});

  TrainerParts parts() {
    TrainerParts parts;
    parts.dataset = &Digits();
    parts.model = &model;
    parts.optimizer = optimizer.get();
    return parts;
  }
};

// Runs `body` on `size` ranks that are threads.
void RunRanks(int size, const std::function<void(Communicator&)>& body) {
  LoopbackHub hub;
  const CommunicatorFactory factory = hub.Factory();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto group =
          factory(GroupSpec{"job", rank, size, absl::Seconds(20)}, nullptr);
      ASSERT_THAT(group, IsOk());
      body(**group);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

struct Recorder final : TrainingObserver {
  void OnStep(const StepEvent& event) override { steps.push_back(event); }
  void OnEval(const EvalEvent& event) override { evals.push_back(event); }
  void OnFallback(const FallbackEvent& event) override {
    fallbacks.push_back(event);
  }
  std::vector<StepEvent> steps;
  std::vector<EvalEvent> evals;
  std::vector<FallbackEvent> fallbacks;
};

double LargestDifference(const Model<float>& one, const Model<float>& other) {
  double largest = 0;
  for (size_t i = 0; i < one.weights().size(); ++i) {
    const auto& a = one.weights()[i]->values.values;
    const auto& b = other.weights()[i]->values.values;
    for (size_t j = 0; j < a.size(); ++j) {
      largest = std::max(largest, std::fabs(double(a[j]) - double(b[j])));
    }
  }
  return largest;
}

TEST(TrainerTest, SgdLearnsDigits) {
  Rank rank;
  Recorder recorder;
  TrainerParts parts = rank.parts();
  parts.observer = &recorder;
  TrainerOptions options = DigitsOptions();
  options.target_accuracy = 0.9;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto summary, Train(options, parts));
  EXPECT_EQ(summary.end, End::kCompleted);
  // 1438 training rows: 22 batches of 64.
  EXPECT_EQ(summary.steps, 12 * 22);
  EXPECT_GT(summary.final_accuracy, 0.95);
  ASSERT_TRUE(summary.steps_to_target.has_value());
  EXPECT_LT(*summary.steps_to_target, 12 * 22);
  EXPECT_THAT(recorder.steps, SizeIs(12 * 22));
  EXPECT_THAT(recorder.evals, SizeIs(12));
  EXPECT_EQ(recorder.evals[0].step, 22);
  EXPECT_LT(recorder.steps.back().loss, recorder.steps.front().loss / 4);
  EXPECT_EQ(recorder.steps.back().epoch, 11);
}

TEST(TrainerTest, AdamAndTheConvolutionalNetworkLearnDigits) {
  ConvnetShape shape;
  shape.height = shape.width = 8;
  auto model = CreateConvnet(Kernels(), shape, 5);
  const auto adam = CreateAdam<float>({});
  Rank rank;
  TrainerParts parts = rank.parts();
  parts.model = &model;
  parts.optimizer = adam.get();
  TrainerOptions options = DigitsOptions();
  options.lr = 0.005;
  options.epochs = 15;
  options.cosine = true;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto summary, Train(options, parts));
  EXPECT_GT(summary.final_accuracy, 0.95);
}

TEST(TrainerTest, StopsAtTheTargetAndAtMaxSteps) {
  Rank rank;
  TrainerOptions options = DigitsOptions();
  options.target_accuracy = 0.5;
  options.stop_at_target = true;
  options.eval_every = 5;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto summary, Train(options, rank.parts()));
  EXPECT_EQ(summary.end, End::kTargetReached);
  EXPECT_EQ(summary.steps, *summary.steps_to_target);
  EXPECT_EQ(summary.steps % 5, 0);
  Rank other;
  options = DigitsOptions();
  options.max_steps = 7;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(summary, Train(options, other.parts()));
  EXPECT_EQ(summary.steps, 7);
  EXPECT_GT(summary.final_accuracy, 0);  // Evaluated at the end all the same.
}

// 3 ranks of 64 rows have 21, 21 and 22: unequal parts must not skew the mean.
TEST(TrainerTest, ThreeRanksTrainTheModelOfOne) {
  TrainerOptions options = DigitsOptions();
  options.max_steps = 30;
  Rank alone;
  ASSERT_THAT(Train(options, alone.parts()), IsOk());
  options.verify_replicas = true;
  Rank ranks[3];
  RunRanks(3, [&](Communicator& group) {
    TrainerParts parts = ranks[group.rank()].parts();
    parts.group = &group;
    const auto summary = Train(options, parts);
    ASSERT_THAT(summary, IsOk());
    EXPECT_EQ(summary->steps, 30);
  });
  EXPECT_LT(LargestDifference(alone.model, ranks[0].model), 1e-5);
  EXPECT_EQ(LargestDifference(ranks[0].model, ranks[1].model), 0);
  EXPECT_EQ(LargestDifference(ranks[0].model, ranks[2].model), 0);
}

TEST(TrainerTest, MicroBatchesTrainTheModelOfWholeBatches) {
  TrainerOptions options = DigitsOptions();
  options.max_steps = 30;
  Rank whole;
  ASSERT_THAT(Train(options, whole.parts()), IsOk());
  options.accumulation = 5;  // 64 rows: 12, 13, 13, 13, 13.
  Rank pieces;
  ASSERT_THAT(Train(options, pieces.parts()), IsOk());
  EXPECT_LT(LargestDifference(whole.model, pieces.model), 1e-5);
}

TEST(TrainerTest, AStopOnOneRankEndsAllAtTheSameStep) {
  std::atomic<bool> stop{false};
  std::vector<int64_t> steps(3);
  RunRanks(3, [&](Communicator& group) {
    // Rank 1 alone is told, in its fourth step.
    struct Stopper final : TrainingObserver {
      explicit Stopper(std::atomic<bool>* stop) : stop(stop) {}
      void OnStep(const StepEvent& event) override {
        if (event.step == 3) stop->store(true);
      }
      std::atomic<bool>* stop;
    } stopper(&stop);
    Rank rank;
    TrainerParts parts = rank.parts();
    parts.group = &group;
    if (group.rank() == 1) {
      parts.observer = &stopper;
      parts.stop = &stop;
    }
    const auto summary = Train(DigitsOptions(), parts);
    ASSERT_THAT(summary, IsOk());
    EXPECT_EQ(summary->end, End::kStopped);
    steps[group.rank()] = summary->steps;
  });
  EXPECT_THAT(steps, ElementsAre(5, 5, 5));
}

TEST(TrainerTest, ALossThatIsNotFiniteEndsTheRun) {
  Rank rank;
  TrainerOptions options = DigitsOptions();
  options.lr = 1e30;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto summary,
                                 Train(options, rank.parts()));
  EXPECT_EQ(summary.end, End::kDiverged);
  EXPECT_FALSE(std::isfinite(summary.last_loss));
  EXPECT_LT(summary.steps, 22);
}

TEST(TrainerTest, RanksWithOtherOptionsAreNamedBeforeTheyTrain) {
  RunRanks(3, [](Communicator& group) {
    Rank rank;
    TrainerParts parts = rank.parts();
    parts.group = &group;
    TrainerOptions options = DigitsOptions();
    if (group.rank() == 2) options.lr = 0.06;
    EXPECT_THAT(Train(options, parts),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("rank 2 has other training options")));
  });
}

TEST(TrainerTest, RefusesBatchesThatDoNotFit) {
  Rank rank;
  TrainerOptions options = DigitsOptions();
  options.batch = 2000;
  EXPECT_THAT(Train(options, rank.parts()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("batch 2000 is larger than the 1438")));
  options.batch = 3;
  options.accumulation = 4;
  EXPECT_THAT(Train(options, rank.parts()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("batch 3 is too small for 1 ranks of 4")));
}

TEST(TrainerTest, VerifyReplicasNamesTheStepThatDiffers) {
  RunRanks(3, [](Communicator& group) {
    // Rank 1's optimizer goes wrong in one bit at its third step.
    struct Faulty final : Optimizer<float> {
      Faulty(int rank) : rank(rank) {}
      int slots_per_parameter() const override { return 1; }
      void Step(double lr, const std::vector<linalg::MatrixView<float>>& p,
                const std::vector<linalg::MatrixView<float>>& g) override {
        sgd->Step(lr, p, g);
        if (rank == 1 && ++steps == 3) {
          p[0].data[5] = std::nextafter(p[0].data[5], 1e9f);
        }
      }
      const int rank;
      int steps = 0;
      std::unique_ptr<Optimizer<float>> sgd = CreateSgd<float>({});
    } faulty(group.rank());
    Rank rank;
    TrainerParts parts = rank.parts();
    parts.group = &group;
    parts.optimizer = &faulty;
    TrainerOptions options = DigitsOptions();
    options.verify_replicas = true;
    EXPECT_THAT(Train(options, parts),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr("step 2: "),
                               HasSubstr(absl::StrCat("rank ", group.rank())),
                               HasSubstr("differ"))));
  });
}

TEST(TrainerTest, TheHashLogHasOneLinePerStep) {
  const std::string path = ::testing::TempDir() + "/trainer_test_hashes";
  Rank rank;
  TrainerOptions options = DigitsOptions();
  options.max_steps = 3;
  options.hash_log = path;
  ASSERT_THAT(Train(options, rank.parts()), IsOk());
  std::ifstream file(path);
  int64_t step = -1;
  std::string hash;
  for (int64_t expected = 0; expected < 3; ++expected) {
    ASSERT_TRUE(file >> step >> hash);
    EXPECT_EQ(step, expected);
    EXPECT_EQ(hash.size(), 16u);
  }
  EXPECT_EQ(hash,
            std::string(absl::StrCat(absl::Hex(
                HashParameters(rank.model.parameters()), absl::kZeroPad16))));
  EXPECT_FALSE(file >> step);
  std::remove(path.c_str());
  options.hash_log = "/no/such/folder/hashes";
  EXPECT_THAT(Train(options, rank.parts()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("/no/such/folder/hashes")));
}

TEST(TrainerTest, ABrokenGroupNamesTheStep) {
  RunRanks(2, [](Communicator& group) {
    struct Quitter final : TrainingObserver {
      explicit Quitter(Communicator* group) : group(group) {}
      void OnStep(const StepEvent& event) override {
        if (event.step == 1) group->Abort();
      }
      Communicator* group;
    } quitter(&group);
    Rank rank;
    TrainerParts parts = rank.parts();
    parts.group = &group;
    if (group.rank() == 0) parts.observer = &quitter;
    EXPECT_THAT(Train(DigitsOptions(), parts),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("step ")));
  });
}

// A session that records what it is fed, halves gradients, and lets layer 1
// fall back at steps 1 and 2.
class RecordingSession final : public Session {
 public:
  Communicator& job_group() override { return *group_; }
  int64_t start_step() const override { return 0; }
  int64_t restart_count() const override { return 0; }
  uint64_t plan_hash() const override { return 0; }
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
  absl::Status AccumulateConv(int, const curvature::ConvGeometry&,
                              linalg::ConstMatrixView<float>,
                              linalg::ConstMatrixView<float>,
                              int64_t) override {
    return absl::UnimplementedError("no convolutions here");
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
  absl::Status Finish() override { return absl::OkStatus(); }

  std::unique_ptr<Communicator> group_;
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
  struct Listener final : Session {
    Communicator& job_group() override { return *group; }
    int64_t start_step() const override { return 0; }
    int64_t restart_count() const override { return 0; }
    uint64_t plan_hash() const override { return 0; }
    bool NeedsStatistics(int64_t, int) const override { return true; }
    absl::Status AccumulateLinear(int, linalg::ConstMatrixView<float>,
                                  linalg::ConstMatrixView<float>,
                                  int64_t) override {
      return absl::InvalidArgumentError("no layers");
    }
    absl::Status AccumulateConv(int, const curvature::ConvGeometry&,
                                linalg::ConstMatrixView<float>,
                                linalg::ConstMatrixView<float>,
                                int64_t) override {
      return absl::InvalidArgumentError("no layers");
    }
    absl::StatusOr<StepResult> Step(
        int64_t step, const StepSettings&,
        const std::vector<linalg::MatrixView<float>>& gradients) override {
      EXPECT_THAT(gradients, SizeIs(0));
      steps.push_back(step);
      return StepResult();
    }
    absl::Status Finish() override { return absl::OkStatus(); }
    Communicator* group = nullptr;
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

TEST(EvaluationTest, IsTheSameForAnyNumberOfRanks) {
  Rank rank;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Evaluation alone,
                                 Evaluate(Digits(), &rank.model, nullptr));
  RunRanks(4, [&](Communicator& group) {
    Rank mine;
    const auto shared = Evaluate(Digits(), &mine.model, &group);
    ASSERT_THAT(shared, IsOk());
    EXPECT_EQ(shared->accuracy, alone.accuracy);
    EXPECT_NEAR(shared->loss, alone.loss, 1e-5);
  });
}

// Ends with `left` steps left, as if the job group had broken.
struct BreakingSession final : Session {
  Communicator& job_group() override { return *group; }
  int64_t start_step() const override { return 0; }
  int64_t restart_count() const override { return 0; }
  uint64_t plan_hash() const override { return 0; }
  bool NeedsStatistics(int64_t, int) const override { return false; }
  absl::Status AccumulateLinear(int, linalg::ConstMatrixView<float>,
                                linalg::ConstMatrixView<float>,
                                int64_t) override {
    return absl::OkStatus();
  }
  absl::Status AccumulateConv(int, const curvature::ConvGeometry&,
                              linalg::ConstMatrixView<float>,
                              linalg::ConstMatrixView<float>,
                              int64_t) override {
    return absl::OkStatus();
  }
  absl::StatusOr<StepResult> Step(
      int64_t, const StepSettings&,
      const std::vector<linalg::MatrixView<float>>&) override {
    if (left-- == 0) return absl::UnavailableError("rank 1 left");
    return StepResult();
  }
  absl::Status Finish() override { return absl::OkStatus(); }

  int left = 0;
  Communicator* group = nullptr;
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
