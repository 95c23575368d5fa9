// The training loop on digits: alone, over ranks, and when things go wrong.

#include "worker/training/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "worker/training/evaluation.h"
#include "worker/training/replica_check.h"
#include "worker/training/testing/trainer_parts.h"

namespace kronserve::worker {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using End = TrainingSummary::End;
using testing::Digits;
using testing::DigitsOptions;
using testing::Kernels;
using testing::LargestDifference;
using testing::Rank;
using testing::Recorder;
using testing::RunRanks;

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

// An optimizer that goes wrong in one bit at rank 1's third step.
class FaultyOptimizer final : public Optimizer<float> {
 public:
  explicit FaultyOptimizer(int rank) : rank_(rank) {}
  int slots_per_parameter() const override { return 1; }
  void Step(double lr, const std::vector<linalg::MatrixView<float>>& p,
            const std::vector<linalg::MatrixView<float>>& g) override {
    sgd_->Step(lr, p, g);
    if (rank_ != 1 || ++steps_ != 3) return;
    p[0].data[5] = std::nextafter(p[0].data[5], 1e9f);
  }

 private:
  const int rank_;
  int steps_ = 0;
  std::unique_ptr<Optimizer<float>> sgd_ = CreateSgd<float>({});
};

TEST(TrainerTest, VerifyReplicasNamesTheStepThatDiffers) {
  RunRanks(3, [](Communicator& group) {
    FaultyOptimizer faulty(group.rank());
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

}  // namespace
}  // namespace kronserve::worker
