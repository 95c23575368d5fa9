#include "worker/stop_watcher.h"

#include <cstdio>
#include <cstdlib>

#include "common/clock.h"
#include "common/log.h"
#include "common/shutdown_signal.h"

namespace kronserve::worker {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(50);
constexpr absl::Duration kStepGrace = absl::Seconds(3);
constexpr absl::Duration kAbortGrace = absl::Seconds(1);

// Destructors would wait for what does not come.
[[noreturn]] void EndProcess(int exit_code, const char* reason) {
  Log(LogLevel::kWarning, reason);
  std::fflush(nullptr);
  std::_Exit(exit_code);
}

}  // namespace

StopWatcher::StopWatcher() : thread_([this] { Run(); }) {}

StopWatcher::~StopWatcher() {
  {
    MutexLock lock(&mu_);
    closed_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void StopWatcher::BeginTraining(Communicator* group) {
  MutexLock lock(&mu_);
  training_ = true;
  group_ = group;
}

void StopWatcher::EndTraining() {
  MutexLock lock(&mu_);
  group_ = nullptr;
}

bool StopWatcher::WaitUntilClosed(absl::Duration timeout) {
  const absl::Time deadline = SteadyClock().Now() + timeout;
  MutexLock lock(&mu_);
  while (!closed_) {
    const absl::Duration left = deadline - SteadyClock().Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(&mu_, left);
  }
  return true;
}

void StopWatcher::Run() {
  while (WaitForShutdownSignal(kPoll) == 0) {
    if (WaitUntilClosed(absl::ZeroDuration())) return;
  }
  stop_ = true;
  {
    MutexLock lock(&mu_);
    if (!training_ && !closed_) {
      EndProcess(0, "stopped by a signal before training");
    }
  }
  if (WaitUntilClosed(kStepGrace)) return;
  {
    // Abort() only flags and closes; EndTraining() waits for it.
    MutexLock lock(&mu_);
    if (group_ != nullptr) group_->Abort();
  }
  if (WaitUntilClosed(kAbortGrace)) return;
  EndProcess(1, "stopped by a signal inside a step that did not end");
}

}  // namespace kronserve::worker
