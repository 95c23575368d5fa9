#include "common/shutdown_signal.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace kronserve {
namespace {

// [read, write]; written by the handler alone.
int handled_signals[2] = {-1, -1};

sigset_t ShutdownSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// Runs only on threads that do not block the signals: those that libraries
// start before main(), as OpenBLAS does. Without it they would end the process.
void Forward(int signal_number) {
  const int kept = errno;
  const char byte = static_cast<char>(signal_number);
  // A full pipe already says that it is time to end.
  (void)!write(handled_signals[1], &byte, 1);
  errno = kept;
}

// Takes one signal from either source; 0 when there is none.
int TakeSignal(int pending_fd) {
  char byte = 0;
  if (read(handled_signals[0], &byte, 1) == 1) return byte;
  signalfd_siginfo info;
  if (read(pending_fd, &info, sizeof(info)) == sizeof(info)) {
    return static_cast<int>(info.ssi_signo);
  }
  return 0;
}

}  // namespace

void BlockShutdownSignals() {
  const sigset_t signals = ShutdownSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  if (handled_signals[0] >= 0) return;
  if (pipe2(handled_signals, O_CLOEXEC | O_NONBLOCK) != 0) return;
  struct sigaction action = {};
  action.sa_handler = &Forward;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

int WaitForShutdownSignal(absl::Duration timeout) {
  const sigset_t signals = ShutdownSignals();
  const int pending_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  pollfd sources[] = {{handled_signals[0], POLLIN, 0}, {pending_fd, POLLIN, 0}};
  const timespec wait =
      absl::ToTimespec(std::max(timeout, absl::ZeroDuration()));
  ppoll(sources, 2, &wait, nullptr);
  const int signal_number = TakeSignal(pending_fd);
  close(pending_fd);
  return signal_number;
}

}  // namespace kronserve
