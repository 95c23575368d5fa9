#include "common/shutdown_signal.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <algorithm>

namespace kronserve {
namespace {

sigset_t ShutdownSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

}  // namespace

void BlockShutdownSignals() {
  const sigset_t signals = ShutdownSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

int WaitForShutdownSignal(absl::Duration timeout) {
  const sigset_t signals = ShutdownSignals();
  const timespec wait =
      absl::ToTimespec(std::max(timeout, absl::ZeroDuration()));
  const int signal_number = sigtimedwait(&signals, nullptr, &wait);
  return std::max(signal_number, 0);
}

}  // namespace kronserve
