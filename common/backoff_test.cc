#include "common/backoff.h"

#include <gtest/gtest.h>

namespace kronserve {
namespace {

TEST(Backoff, DoublesUpToTheLongestWithJitterBelow) {
  Backoff backoff(absl::Milliseconds(100), absl::Milliseconds(1000), 7);
  for (const int whole : {100, 200, 400, 800, 1000, 1000}) {
    const absl::Duration delay = backoff.Next();
    EXPECT_GE(delay, absl::Milliseconds(whole) / 2);
    EXPECT_LE(delay, absl::Milliseconds(whole));
  }
}

TEST(Backoff, ResetStartsAgain) {
  Backoff backoff(absl::Milliseconds(100), absl::Seconds(10), 7);
  for (int i = 0; i < 5; ++i) backoff.Next();
  backoff.Reset();
  EXPECT_LE(backoff.Next(), absl::Milliseconds(100));
}

TEST(Backoff, SeedDecidesTheDelays) {
  Backoff first(absl::Seconds(1), absl::Seconds(8), 1);
  Backoff again(absl::Seconds(1), absl::Seconds(8), 1);
  Backoff other(absl::Seconds(1), absl::Seconds(8), 2);
  const absl::Duration delay = first.Next();
  EXPECT_EQ(again.Next(), delay);
  EXPECT_NE(other.Next(), delay);
}

}  // namespace
}  // namespace kronserve
