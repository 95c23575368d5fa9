// Keeps a server known to its scheduler.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.
// A thread of its own, which shares no lock with refreshes beyond a short
// snapshot: a busy server is not a dead one.

#ifndef KRONSERVE_SERVER_SCHEDULER_LINK_H_
#define KRONSERVE_SERVER_SCHEDULER_LINK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/backoff.h"
#include "common/mutex.h"
#include "kronserve/v1/scheduler.pb.h"

namespace kronserve::server {

struct LinkOptions {
  std::string scheduler;  // host:port; of several: comma-separated
  std::string name;
  uint64_t incarnation = 0;
  int64_t memory_bytes = 0;
  v1::CostCurve cost;
  int64_t refresh_threads = 1;
};

// What the link needs from its process; called on the link's thread.
struct LinkCallbacks {
  // What a heartbeat tells, or (registering) what the server knows of its jobs;
  // and the highest term seen.
  std::function<void(bool registering, v1::ServerHeartbeatRequest*,
                     uint64_t* term_seen)>
      fill;
  // After each answer, with the scheduler's term.
  std::function<void(uint64_t term)> term;
  // After each heartbeat that was answered.
  std::function<void(const v1::ServerHeartbeatResponse&)> heartbeat;
  // After the first registration.
  std::function<void()> registered;
};

// Registers, then sends heartbeats; registers again when the scheduler does
// not know the server (it restarted); retries with backoff while it cannot be
// reached, for as long as the link lives.
//
// Thread safety: thread-safe.
// Lifetime:      Stop() or the destructor ends it.
class SchedulerLink {
 public:
  SchedulerLink(LinkOptions options, LinkCallbacks callbacks);
  ~SchedulerLink();

  // Starts the thread. Called once.
  //
  //   address  host:port where peers reach this server.
  void Start(const std::string& address);

  // Cancels the call under way and joins the thread. Says no goodbye: the
  // lease runs out. Idempotent; one thread calls it.
  void Stop();

  // Sends the next heartbeat now: the scheduler then sees that this server is
  // behind. Does not block.
  void HeartbeatSoon() ABSL_LOCKS_EXCLUDED(mu_);

  bool is_registered() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Rpc;  // Stub and channel.

  void Run();
  // One exchange; returns how long to wait for the next.
  absl::Duration Exchange();
  absl::Status Register();
  absl::Status Heartbeat();
  void Report(const absl::Status& status);
  void WaitFor(absl::Duration delay) ABSL_LOCKS_EXCLUDED(mu_);

  const LinkOptions options_;
  const LinkCallbacks callbacks_;
  const std::unique_ptr<Rpc> rpc_;

  // Used by the link's thread alone.
  std::string address_;
  Backoff backoff_;
  absl::Duration heartbeat_period_;
  bool was_registered_ = false;
  std::string reported_;  // The fault that was logged last.

  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool soon_ ABSL_GUARDED_BY(mu_) = false;
  bool registered_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;
};

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_SCHEDULER_LINK_H_
