#include "scheduler/retry.h"

#include <gtest/gtest.h>

namespace kronserve::scheduler {
namespace {

const absl::Time kStart = absl::UnixEpoch();

TEST(RetryTest, IsDueAtOnceAndThenWaitsForTheAnswer) {
  Retry retry;
  EXPECT_TRUE(retry.Due(kStart));
  retry.Sent(kStart);
  EXPECT_FALSE(retry.Due(kStart + absl::Milliseconds(9999)));
  EXPECT_TRUE(retry.Due(kStart + absl::Seconds(10)));
}

TEST(RetryTest, BacksOffWithEveryFailureAndForgetsThem) {
  Retry retry;
  for (const int ms : {250, 500, 1000, 2000, 2000}) {
    retry.Failed(kStart);
    EXPECT_FALSE(retry.Due(kStart + absl::Milliseconds(ms - 1))) << ms;
    EXPECT_TRUE(retry.Due(kStart + absl::Milliseconds(ms))) << ms;
  }
  EXPECT_EQ(retry.failures(), 5);
  retry.Succeeded(kStart + absl::Seconds(1));
  EXPECT_EQ(retry.failures(), 0);
  EXPECT_FALSE(retry.Due(kStart));
  EXPECT_TRUE(retry.Due(kStart + absl::Seconds(1)));
  retry.Failed(kStart);
  EXPECT_TRUE(retry.Due(kStart + absl::Milliseconds(250)));
}

}  // namespace
}  // namespace kronserve::scheduler
