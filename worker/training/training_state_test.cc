#include "worker/training/training_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "worker/testing/ranks.h"

namespace kronserve::worker {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two matrices, [1, 2] and [1, 1], under Adam (two slots per parameter).
struct Trainee {
  explicit Trainee(std::vector<float> values = {1, 2, 3})
      : numbers(std::move(values)), optimizer(CreateAdam<float>({})) {
    parts.parameters = {{numbers.data(), 1, 2}, {numbers.data() + 2, 1, 1}};
    parts.optimizer = optimizer.get();
  }
  void Step() {
    std::vector<float> gradient = {1, 1, 1};
    optimizer->Step(0.1, parts.parameters,
                    {{gradient.data(), 1, 2}, {gradient.data() + 2, 1, 1}});
  }
  std::vector<float> numbers;
  std::unique_ptr<Optimizer<float>> optimizer;
  TrainingStateParts parts;
};

TEST(TrainingState, GoesOnAsIfNothingHadHappened) {
  Trainee original;
  original.Step();
  const std::string bytes = EncodeTrainingState(7, original.parts);
  // 6 numbers, 3 parameters and 2 slots of each, the checksum.
  EXPECT_EQ(bytes.size(), 6 * 8 + 9 * 4 + 8u);
  Trainee restored({0, 0, 0});
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const int64_t next_step,
                                 DecodeTrainingState(bytes, restored.parts));
  EXPECT_EQ(next_step, 7);
  EXPECT_EQ(restored.numbers, original.numbers);
  original.Step();
  restored.Step();
  EXPECT_EQ(restored.numbers, original.numbers);
}

TEST(TrainingState, BeforeTheFirstStepThereAreNoSlots) {
  Trainee original;
  const std::string bytes = EncodeTrainingState(0, original.parts);
  Trainee restored({0, 0, 0});
  restored.Step();
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const int64_t next_step,
                                 DecodeTrainingState(bytes, restored.parts));
  EXPECT_EQ(next_step, 0);
  EXPECT_THAT(restored.numbers, ElementsAre(1, 2, 3));
  EXPECT_THAT(restored.optimizer->state().slots, IsEmpty());
}

TEST(TrainingState, DamageIsFoundAndChangesNothing) {
  Trainee original;
  const std::string bytes = EncodeTrainingState(7, original.parts);
  Trainee victim({4, 5, 6});
  const auto decode = [&](const std::string& damaged) {
    return DecodeTrainingState(damaged, victim.parts).status();
  };
  std::string flipped = bytes;
  flipped[50] ^= 1;
  EXPECT_THAT(decode(flipped),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("checksum")));
  EXPECT_THAT(decode(bytes.substr(0, bytes.size() - 4)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("checksum")));
  EXPECT_THAT(decode(""),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("0 bytes")));
  std::string version = bytes;
  version[0] ^= 1;
  EXPECT_THAT(decode(version), StatusIs(absl::StatusCode::kDataLoss,
                                        HasSubstr("format version")));
  EXPECT_THAT(victim.numbers, ElementsAre(4, 5, 6));
}

TEST(TrainingState, AnotherModelOrOptimizerIsRefused) {
  Trainee original;
  original.Step();
  const std::string bytes = EncodeTrainingState(7, original.parts);
  Trainee other({4, 5, 6});
  other.parts.parameters.pop_back();
  EXPECT_THAT(DecodeTrainingState(bytes, other.parts),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("this run has 1 of 2")));
  Trainee sgd({4, 5, 6});
  sgd.optimizer = CreateSgd<float>({});
  sgd.parts.optimizer = sgd.optimizer.get();
  EXPECT_THAT(
      DecodeTrainingState(bytes, sgd.parts),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1 slots each")));
  EXPECT_THAT(sgd.numbers, ElementsAre(4, 5, 6));
}

TEST(ShareTrainingState, NewRanksAndThoseAheadTakeThatOfTheRepeatedStep) {
  // Rank 0 is new, rank 1 has heard that step 7 ended, rank 2 and 3 have not.
  testing::RunGroup(4, [](Communicator& group) {
    const int rank = group.rank();
    Trainee trainee({rank + 0.5f, 0, 0});
    if (rank > 0) trainee.Step();
    const std::vector<float> before = trainee.numbers;
    const std::optional<int64_t> steps[] = {std::nullopt, 8, 7, 7};
    ASSERT_THAT(ShareTrainingState(group, 7, steps[rank], trainee.parts),
                IsOk());
    // 2.5 after one step of Adam at rate 0.1, whose first is the rate itself.
    EXPECT_NEAR(trainee.numbers[0], 2.4, 1e-5);
    EXPECT_EQ(trainee.optimizer->state().steps, 1);
    if (rank == 2) {
      EXPECT_EQ(trainee.numbers, before);
    }
  });
}

TEST(ShareTrainingState, ANewJobKeepsWhatItsRanksBeganWith) {
  testing::RunGroup(3, [](Communicator& group) {
    Trainee trainee;
    ASSERT_THAT(ShareTrainingState(group, 0, std::nullopt, trainee.parts),
                IsOk());
    EXPECT_THAT(trainee.numbers, ElementsAre(1, 2, 3));
  });
}

// As when all ranks of an elastic job died: training would silently go on from
// new parameters.
TEST(ShareTrainingState, AJobWhoseStateIsGoneDoesNotGoOn) {
  testing::RunGroup(2, [](Communicator& group) {
    Trainee trainee;
    EXPECT_THAT(
        ShareTrainingState(group, 6, std::nullopt, trainee.parts),
        StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("step 6")));
  });
}

TEST(ShareTrainingState, AStepThatNobodyHasIsAnError) {
  testing::RunGroup(3, [](Communicator& group) {
    Trainee trainee;
    EXPECT_THAT(ShareTrainingState(group, 6, 7 + group.rank(), trainee.parts),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("step 6")));
  });
}

}  // namespace
}  // namespace kronserve::worker
