#include "scheduler/step_pace.h"

#include <gtest/gtest.h>

namespace kronserve::scheduler {
namespace {

const absl::Time kStart = absl::UnixEpoch();

TEST(StepPaceTest, KnowsNothingFromOneReport) {
  StepPace pace;
  EXPECT_EQ(pace.StepsIn(absl::Seconds(1)), 0);
  pace.Note(1000, kStart);
  EXPECT_EQ(pace.StepsIn(absl::Seconds(1)), 0);
  EXPECT_FALSE(pace.known());
  pace.Note(1000, kStart + absl::Seconds(1));
  EXPECT_TRUE(pace.known());  // It stands still.
  EXPECT_EQ(pace.StepsIn(absl::Seconds(1)), 0);
}

TEST(StepPaceTest, RoundsUpAtThePaceOfLate) {
  StepPace pace;
  pace.Note(0, kStart);
  pace.Note(3, kStart + absl::Seconds(2));  // 1.5 a second.
  EXPECT_EQ(pace.StepsIn(absl::Seconds(2)), 3);
  EXPECT_EQ(pace.StepsIn(absl::Seconds(1)), 2);
  pace.Note(203, kStart + absl::Seconds(3));
  EXPECT_EQ(pace.StepsIn(absl::Seconds(2)), 400);
}

TEST(StepPaceTest, ReportsOfSeveralRanksCountOnce) {
  StepPace pace;
  pace.Note(0, kStart);
  pace.Note(1, kStart + absl::Milliseconds(1));
  EXPECT_FALSE(pace.known());
  pace.Note(2, kStart + absl::Seconds(1));
  EXPECT_EQ(pace.StepsIn(absl::Seconds(1)), 2);
}

TEST(StepPaceTest, APauseIsNotBelievedAtOnce) {
  StepPace pace;
  pace.Note(0, kStart);
  pace.Note(100, kStart + absl::Seconds(1));
  pace.Note(100, kStart + absl::Seconds(2));
  EXPECT_EQ(pace.StepsIn(absl::Seconds(1)), 50);
  pace.Note(100, kStart + absl::Seconds(3));
  EXPECT_EQ(pace.StepsIn(absl::Seconds(1)), 25);
}

}  // namespace
}  // namespace kronserve::scheduler
