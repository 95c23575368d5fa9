#include "common/shutdown_signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

namespace kronserve {
namespace {

class ShutdownSignalTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { BlockShutdownSignals(); }
};

TEST_F(ShutdownSignalTest, TimesOutWithZero) {
  EXPECT_EQ(WaitForShutdownSignal(absl::Milliseconds(1)), 0);
  EXPECT_EQ(WaitForShutdownSignal(absl::ZeroDuration()), 0);
  EXPECT_EQ(WaitForShutdownSignal(absl::Seconds(-1)), 0);
}

TEST_F(ShutdownSignalTest, ReportsEachSignalOnce) {
  ASSERT_EQ(kill(getpid(), SIGTERM), 0);
  EXPECT_EQ(WaitForShutdownSignal(absl::Seconds(30)), SIGTERM);
  ASSERT_EQ(kill(getpid(), SIGINT), 0);
  EXPECT_EQ(WaitForShutdownSignal(absl::Seconds(30)), SIGINT);
  EXPECT_EQ(WaitForShutdownSignal(absl::ZeroDuration()), 0);
}

TEST_F(ShutdownSignalTest, WakesAWaiter) {
  std::thread sender([] { kill(getpid(), SIGTERM); });
  EXPECT_EQ(WaitForShutdownSignal(absl::Seconds(30)), SIGTERM);
  sender.join();
}

TEST_F(ShutdownSignalTest, ThreadsStartedLaterAreSpared) {
  sigset_t blocked;
  std::thread thread(
      [&blocked] { pthread_sigmask(SIG_SETMASK, nullptr, &blocked); });
  thread.join();
  EXPECT_EQ(sigismember(&blocked, SIGTERM), 1);
  EXPECT_EQ(sigismember(&blocked, SIGINT), 1);
}

// As a library's thread does that was started before main().
TEST_F(ShutdownSignalTest, AThreadThatDoesNotBlockDoesNotEndTheProcess) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  std::thread thread([&signals] {
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    // Directed at this thread, so that no other one can take it.
    // NOLINTNEXTLINE(bugprone-bad-signal-to-kill-thread): it is waited for.
    pthread_kill(pthread_self(), SIGTERM);
  });
  EXPECT_EQ(WaitForShutdownSignal(absl::Seconds(30)), SIGTERM);
  thread.join();
  EXPECT_EQ(WaitForShutdownSignal(absl::ZeroDuration()), 0);
}

TEST_F(ShutdownSignalTest, BrokenPipeIsAnErrorNotTheEnd) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  EXPECT_EQ(write(ends[1], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  close(ends[1]);
}

}  // namespace
}  // namespace kronserve
