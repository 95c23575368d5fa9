#include "worker/training/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace kronserve::worker {
namespace {

std::vector<int64_t> BatchOf(BatchSchedule* schedule, int64_t step) {
  const int64_t* rows = schedule->Rows(step);
  return {rows, rows + schedule->batch()};
}

TEST(PartOfTest, CoversTheRangeInOrderWithSizesThatDifferByOne) {
  // 10 rows over 4 parts: floor(10 r / 4) = 0, 2, 5, 7, 10.
  const RowRange whole{100, 110};
  EXPECT_EQ(PartOf(whole, 0, 4).begin, 100);
  EXPECT_EQ(PartOf(whole, 0, 4).end, 102);
  EXPECT_EQ(PartOf(whole, 1, 4).end, 105);
  EXPECT_EQ(PartOf(whole, 2, 4).end, 107);
  EXPECT_EQ(PartOf(whole, 3, 4).begin, 107);
  EXPECT_EQ(PartOf(whole, 3, 4).end, 110);
  EXPECT_EQ(PartOf(whole, 0, 1).size(), 10);
}

TEST(BatchScheduleTest, AnEpochUsesEveryRowAtMostOnce) {
  BatchSchedule schedule(/*rows=*/23, /*batch=*/5, /*seed=*/1);
  EXPECT_EQ(schedule.steps_per_epoch(), 4);  // 3 rows are left over.
  std::set<int64_t> used;
  for (int64_t step = 0; step < 4; ++step) {
    for (const int64_t row : BatchOf(&schedule, step)) {
      EXPECT_GE(row, 0);
      EXPECT_LT(row, 23);
      EXPECT_TRUE(used.insert(row).second) << row;
    }
  }
  EXPECT_EQ(schedule.EpochOf(3), 0);
  EXPECT_EQ(schedule.EpochOf(4), 1);
}

TEST(BatchScheduleTest, DependsOnSeedAndEpochAloneNotOnTheWayThere) {
  BatchSchedule walked(40, 8, 9);
  BatchSchedule jumped(40, 8, 9);
  BatchSchedule other(40, 8, 10);
  for (int64_t step = 0; step < 12; ++step) walked.Rows(step);
  EXPECT_EQ(BatchOf(&walked, 12), BatchOf(&jumped, 12));
  EXPECT_NE(BatchOf(&jumped, 12), BatchOf(&other, 12));
  // Back to an earlier epoch, whose order was another one.
  EXPECT_EQ(BatchOf(&walked, 0), BatchOf(&jumped, 0));
  EXPECT_NE(BatchOf(&walked, 0), BatchOf(&walked, 5));
}

TEST(BatchScheduleTest, ABatchOfAllRowsIsAPermutation) {
  BatchSchedule schedule(6, 6, 4);
  std::vector<int64_t> rows = BatchOf(&schedule, 0);
  std::sort(rows.begin(), rows.end());
  EXPECT_THAT(rows, ::testing::ElementsAre(0, 1, 2, 3, 4, 5));
}

}  // namespace
}  // namespace kronserve::worker
