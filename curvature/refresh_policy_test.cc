#include "curvature/refresh_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace kronserve::curvature {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

RefreshIntervals Every(int64_t factor_steps, int64_t inv_steps,
                       RefreshSchedule schedule = RefreshSchedule::kStaggered) {
  RefreshIntervals intervals;
  intervals.factor_update_steps = factor_steps;
  intervals.inv_update_steps = inv_steps;
  intervals.schedule = schedule;
  return intervals;
}

TEST(FactorStepTest, EveryThirdStep) {
  const RefreshIntervals intervals = Every(3, 10);
  EXPECT_TRUE(IsFactorStep(intervals, 0));
  EXPECT_FALSE(IsFactorStep(intervals, 1));
  EXPECT_TRUE(IsFactorStep(intervals, 6));
  EXPECT_EQ(LastFactorStep(intervals, 0), 0);
  EXPECT_EQ(LastFactorStep(intervals, 2), 0);
  EXPECT_EQ(LastFactorStep(intervals, 3), 3);
  EXPECT_EQ(LastFactorStep(intervals, 8), 6);
}

TEST(FactorStepTest, EveryStep) {
  EXPECT_TRUE(IsFactorStep(Every(1, 1), 7));
  EXPECT_EQ(LastFactorStep(Every(1, 1), 7), 7);
}

TEST(RefreshPhasesTest, AlignedIsAllTogether) {
  EXPECT_THAT(RefreshPhases(Every(1, 10, RefreshSchedule::kAligned), {5, 1, 9}),
              ElementsAre(0, 0, 0));
}

// Heaviest first: 8 -> phase 0, 7 -> phase 1, 6 -> phase 2; then 5 joins the
// 6 (least), 4 the 7, 3 the 8; loads are 11, 11, 11; 1 goes to phase 0.
TEST(RefreshPhasesTest, StaggeredIsDealtOutHeaviestFirst) {
  EXPECT_THAT(RefreshPhases(Every(1, 3), {3, 8, 5, 1, 7, 4, 6}),
              ElementsAre(0, 0, 2, 0, 1, 1, 2));
}

TEST(RefreshPhasesTest, TiesGoToTheFirstLayerAndTheLowestPhase) {
  EXPECT_THAT(RefreshPhases(Every(1, 3), {2, 2, 2, 2}),
              ElementsAre(0, 1, 2, 0));
}

TEST(RefreshPhasesTest, FewerLayersThanPhases) {
  EXPECT_THAT(RefreshPhases(Every(1, 1000000000000), {1, 3}),
              ElementsAre(1, 0));
  EXPECT_THAT(RefreshPhases(Every(1, 4), {}), IsEmpty());
}

TEST(RefreshPhasesTest, EveryStepHasOnePhase) {
  EXPECT_THAT(RefreshPhases(Every(1, 1), {1, 3, 2}), ElementsAre(0, 0, 0));
}

TEST(DueStepTest, NewestStepOfThePhase) {
  const RefreshIntervals intervals = Every(1, 10);
  EXPECT_EQ(DueStep(intervals, 3, 0, 23), 23);
  EXPECT_EQ(DueStep(intervals, 3, 0, 24), 23);
  EXPECT_EQ(DueStep(intervals, 3, 0, 32), 23);
  EXPECT_EQ(DueStep(intervals, 3, 0, 33), 33);
  EXPECT_EQ(DueStep(intervals, 0, 0, 33), 30);
}

TEST(DueStepTest, TheFirstRoundIsAlwaysOne) {
  const RefreshIntervals intervals = Every(1, 10);
  // Before the phase comes round for the first time, step 0 is the newest.
  EXPECT_EQ(DueStep(intervals, 3, 0, 0), 0);
  EXPECT_EQ(DueStep(intervals, 3, 0, 2), 0);
  EXPECT_EQ(DueStep(intervals, 3, 0, 3), 3);
  // A layer that started at 17: 13 is before its time.
  EXPECT_EQ(DueStep(intervals, 3, 17, 17), 17);
  EXPECT_EQ(DueStep(intervals, 3, 17, 22), 17);
  EXPECT_EQ(DueStep(intervals, 3, 17, 23), 23);
  EXPECT_EQ(DueStep(intervals, 7, 17, 17), 17);
}

TEST(DueStepTest, NoneBeforeTheFirstRound) {
  const RefreshIntervals intervals = Every(1, 10);
  EXPECT_EQ(DueStep(intervals, 3, 17, 16), -1);
  EXPECT_EQ(DueStep(intervals, 3, 17, 13), -1);
  EXPECT_EQ(DueStep(intervals, 3, 0, -1), -1);
}

TEST(DueStepTest, EveryStep) {
  EXPECT_EQ(DueStep(Every(1, 1), 0, 5, 9), 9);
  EXPECT_EQ(DueStep(Every(1, 1), 0, 5, 5), 5);
}

}  // namespace
}  // namespace kronserve::curvature
