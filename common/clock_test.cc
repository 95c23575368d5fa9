// What every Clock must do; a clock joins by one line at the end.

#include "common/clock.h"

#include <gtest/gtest.h>
#include <time.h>

#include "common/testing/fake_clock.h"

namespace kronserve {
namespace {

const Clock& Fake() {
  static const testing::FakeClock clock;
  return clock;
}

class ClockContractTest : public ::testing::TestWithParam<const Clock& (*)()> {
};

TEST_P(ClockContractTest, NeverGoesBack) {
  const Clock& clock = GetParam()();
  absl::Time last = clock.Now();
  for (int i = 0; i < 1000; ++i) {
    const absl::Time now = clock.Now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST_P(ClockContractTest, StartsAboveZeroSoThatLeasesMaySubtract) {
  EXPECT_GT(GetParam()().Now(), absl::UnixEpoch());
}

INSTANTIATE_TEST_SUITE_P(Clocks, ClockContractTest,
                         ::testing::Values(&SteadyClock, &Fake));

TEST(SteadyClock, CountsTheTimeSinceBootWithSleep) {
  timespec before, after;
  clock_gettime(CLOCK_BOOTTIME, &before);
  const absl::Time now = SteadyClock().Now();
  clock_gettime(CLOCK_BOOTTIME, &after);
  EXPECT_GE(now, absl::TimeFromTimespec(before));
  EXPECT_LE(now, absl::TimeFromTimespec(after));
}

TEST(FakeClock, MovesByHandOnly) {
  testing::FakeClock clock;
  const absl::Time start = clock.Now();
  EXPECT_EQ(clock.Now(), start);
  clock.Advance(absl::Seconds(3));
  EXPECT_EQ(clock.Now(), start + absl::Seconds(3));
}

}  // namespace
}  // namespace kronserve
