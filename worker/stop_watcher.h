// SIGTERM and SIGINT for a process that trains.
//
// Layer: worker. May include common/ and worker/collective/communicator.h.

#ifndef KRONSERVE_WORKER_STOP_WATCHER_H_
#define KRONSERVE_WORKER_STOP_WATCHER_H_

#include <atomic>
#include <thread>

#include "common/mutex.h"
#include "worker/collective/communicator.h"

namespace kronserve::worker {

// Waits for a signal on a thread of its own and sees that the process ends
// within 4 s of it: the training loop is asked to stop after its step; if that
// does not come about, the job group is aborted; then the process is ended
// (status 1). Before training, nothing can be lost and the process ends at once
// (status 0).
//
// BlockShutdownSignals() was called before.
//
// Thread safety: thread-safe.
class StopWatcher {
 public:
  StopWatcher();
  ~StopWatcher();
  StopWatcher(const StopWatcher&) = delete;
  StopWatcher& operator=(const StopWatcher&) = delete;

  // From now on the loop looks at stop(). `group` may be null; it lives until
  // EndTraining().
  void BeginTraining(Communicator* group) ABSL_LOCKS_EXCLUDED(mu_);
  void EndTraining() ABSL_LOCKS_EXCLUDED(mu_);

  // Set by a signal.
  const std::atomic<bool>& stop() const { return stop_; }

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  bool WaitUntilClosed(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);

  std::atomic<bool> stop_{false};
  Mutex mu_;
  CondVar changed_;
  bool training_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;  // The destructor runs.
  Communicator* group_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::thread thread_;
};

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_STOP_WATCHER_H_
