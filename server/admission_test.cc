#include "server/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "server/finished_jobs.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MemoryAdmission, CountsJobsTogetherAndReplacesAPrediction) {
  MemoryAdmission memory(100);
  EXPECT_THAT(memory.Admit("a", 60), IsOk());
  EXPECT_THAT(memory.Admit("b", 41),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("'b' needs 41"),
                             HasSubstr("40 of 100 are free"))));
  EXPECT_THAT(memory.Admit("a", 100), IsOk());
  EXPECT_EQ(memory.predicted_total(), 100);
  EXPECT_THAT(memory.Admit("a", 50), IsOk());
  EXPECT_THAT(memory.Admit("b", 50), IsOk());
  memory.Release("a");
  memory.Release("unknown");
  EXPECT_EQ(memory.predicted_total(), 50);
  EXPECT_EQ(memory.predicted("a"), 0);
}

TEST(MemoryAdmission, UncountableBytesNeverFit) {
  MemoryAdmission memory(std::numeric_limits<int64_t>::max() - 1);
  EXPECT_EQ(memory.Admit("a", std::numeric_limits<int64_t>::max()).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(StagingBudget, RefusesWhatPassesTheLimit) {
  StagingBudget staging(10);
  EXPECT_THAT(staging.Reserve(10), IsOk());
  EXPECT_THAT(staging.Reserve(1),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("needs 1"), HasSubstr("10 of 10"))));
  EXPECT_EQ(staging.staged(), 10);
  staging.Release(4);
  EXPECT_THAT(staging.Reserve(4), IsOk());
  EXPECT_EQ(staging.Reserve(std::numeric_limits<int64_t>::max()).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(FinishedJobs, ForgetsTheOldestBeyondItsBound) {
  FinishedJobs finished;
  for (size_t i = 0; i <= FinishedJobs::kMost; ++i) {
    finished.Add(absl::StrCat("job", i), 1);
  }
  EXPECT_FALSE(finished.Contains("job0", 1));
  EXPECT_TRUE(finished.Contains("job1", 1));
  finished.Add("job1", 3);
  finished.Add("job1", 2);
  EXPECT_TRUE(finished.Contains("job1", 3));
  EXPECT_FALSE(finished.Contains("job1", 4));
}

}  // namespace
}  // namespace kronserve::server
