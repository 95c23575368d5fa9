#include "common/mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace kronserve {
namespace {

TEST(Mutex, KeepsCountersWhole) {
  struct {
    Mutex mu;
    int count ABSL_GUARDED_BY(mu) = 0;
  } shared;
  const auto count_thousand = [&shared] {
    for (int k = 0; k < 1000; ++k) {
      MutexLock lock(&shared.mu);
      ++shared.count;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(count_thousand);
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(&shared.mu);
  EXPECT_EQ(shared.count, 4000);
}

TEST(CondVar, WakesOnNotify) {
  struct {
    Mutex mu;
    CondVar changed;
    bool done ABSL_GUARDED_BY(mu) = false;
  } shared;
  std::thread thread([&shared] {
    MutexLock lock(&shared.mu);
    shared.done = true;
    shared.changed.NotifyAll();
  });
  {
    MutexLock lock(&shared.mu);
    while (!shared.done) {
      ASSERT_TRUE(shared.changed.WaitFor(&shared.mu, absl::Seconds(30)));
    }
  }
  thread.join();
}

TEST(CondVar, SaysWhenTheTimeIsUpAndHoldsTheLockAgain) {
  Mutex mu;
  CondVar never;
  MutexLock lock(&mu);
  EXPECT_FALSE(never.WaitFor(&mu, absl::Milliseconds(1)));
  EXPECT_FALSE(never.WaitFor(&mu, absl::Milliseconds(-1)));
}

}  // namespace
}  // namespace kronserve
