#include "worker/job_checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "client/testing/fake_scheduler.h"
#include "common/testing/status_matchers.h"

namespace kronserve::worker {
namespace {

using ::kronserve::client::testing::FakeScheduler;
using ::kronserve::client::testing::SchedulerLink;
using ::kronserve::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr absl::Duration kSoon = absl::Seconds(20);

v1::CheckpointJobResponse Answer(v1::CheckpointState state, int64_t step) {
  v1::CheckpointJobResponse answer;
  answer.set_state(state);
  answer.set_step(step);
  return answer;
}

class JobCheckpointsTest : public ::testing::Test {
 protected:
  JobCheckpointsTest()
      : directory_(
            std::filesystem::path(::testing::TempDir()) /
            ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    parts_.parameters = {{numbers_.data(), 1, 2}};
    parts_.optimizer = optimizer_.get();
  }
  ~JobCheckpointsTest() override { std::filesystem::remove_all(directory_); }

  // Checkpoints every third step; what servers would make is there.
  std::unique_ptr<JobCheckpoints> Start() {
    std::filesystem::create_directories(
        std::filesystem::path(File()).parent_path());
    JobCheckpoints::Options options;
    options.job = "j";
    options.directory = directory_;
    options.every = 3;
    options.incarnation = uint64_t{0xab} << 32;
    options.poll = absl::Milliseconds(1);
    return std::make_unique<JobCheckpoints>(
        options, std::make_unique<SchedulerLink>(&scheduler_));
  }

  // Step s leaves {s, s} as parameters.
  void Take(JobCheckpoints* checkpoints, int64_t step) {
    numbers_ = {float(step), float(step)};
    checkpoints->AfterStep(step, parts_);
  }
  std::string File() const {
    return TrainerFile(directory_, "j", "step3-000000ab");
  }

  const std::string directory_;
  FakeScheduler scheduler_;
  std::vector<float> numbers_ = {0, 0};
  std::unique_ptr<Optimizer<float>> optimizer_ = CreateSgd<float>({});
  TrainingStateParts parts_;
};

TEST_F(JobCheckpointsTest, KeepsTheStateOfTheCutAndWritesItWhenAllIsDone) {
  scheduler_.checkpoint_job().answers = {
      absl::UnavailableError("starting"),
      Answer(v1::CHECKPOINT_STATE_WRITING, 5),
      Answer(v1::CHECKPOINT_STATE_COMPLETE, 5)};
  auto checkpoints = Start();
  Take(checkpoints.get(), 1);
  Take(checkpoints.get(), 2);
  ASSERT_TRUE(checkpoints->WaitUntilIdle(kSoon));  // The cut is known.
  EXPECT_FALSE(std::filesystem::exists(File()));
  for (const int step : {3, 4, 5}) Take(checkpoints.get(), step);
  ASSERT_TRUE(checkpoints->WaitUntilIdle(kSoon));
  checkpoints.reset();

  numbers_ = {0, 0};
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const int64_t next_step,
                                 ReadTrainerFile(File(), parts_));
  EXPECT_EQ(next_step, 6);
  EXPECT_THAT(numbers_, ElementsAre(5, 5));
  const auto& requests = scheduler_.checkpoint_job().requests;
  EXPECT_EQ(requests.front().id(), "step3-000000ab");
  EXPECT_EQ(requests.back().id(), "step3-000000ab");
  EXPECT_FALSE(requests.front().has_step());
}

TEST_F(JobCheckpointsTest, AFailedOneLeavesNoFileAndTheNextIsAskedFor) {
  scheduler_.checkpoint_job().answers = {
      Answer(v1::CHECKPOINT_STATE_WRITING, 2),
      absl::DataLossError("server 's1': disk full"),
      absl::FailedPreconditionError("no directory")};
  auto checkpoints = Start();
  for (const int step : {2, 5}) {
    Take(checkpoints.get(), step);
    ASSERT_TRUE(checkpoints->WaitUntilIdle(kSoon));
  }
  checkpoints.reset();
  EXPECT_FALSE(std::filesystem::exists(File()));
  // Heard of too late, or as DATA_LOSS: both end the first.
  const auto& requests = scheduler_.checkpoint_job().requests;
  EXPECT_EQ(requests.front().id(), "step3-000000ab");
  EXPECT_EQ(requests.back().id(), "step6-000000ab");
}

TEST_F(JobCheckpointsTest, ACutThatWasPassedIsNotWritten) {
  scheduler_.checkpoint_job().answers = {
      Answer(v1::CHECKPOINT_STATE_COMPLETE, 1)};
  auto checkpoints = Start();
  Take(checkpoints.get(), 2);
  ASSERT_TRUE(checkpoints->WaitUntilIdle(kSoon));
  checkpoints.reset();
  EXPECT_FALSE(std::filesystem::exists(File()));
  EXPECT_THAT(scheduler_.checkpoint_job().requests, SizeIs(1));
}

TEST_F(JobCheckpointsTest, AMissingOrDamagedFileIsNamed) {
  EXPECT_THAT(ReadTrainerFile(File(), parts_),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(File())));
  Start();
  std::FILE* file = std::fopen(File().c_str(), "w");
  std::fputs("no state", file);
  std::fclose(file);
  EXPECT_THAT(ReadTrainerFile(File(), parts_),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(File())));
}

}  // namespace
}  // namespace kronserve::worker
