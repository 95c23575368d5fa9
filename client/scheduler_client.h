// A rank's dealings with the scheduler: joining, heartbeats, the rendezvous
// board, finishing.
//
// Layer: client. May include proto/ and common/.
// Nothing here is on the data path: a lost scheduler costs newer assignments,
// never a step.

#ifndef KRONSERVE_CLIENT_SCHEDULER_CLIENT_H_
#define KRONSERVE_CLIENT_SCHEDULER_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/scheduler_api.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "kronserve/v1/scheduler.pb.h"

namespace kronserve::client {

// Time and waiting, handed in so that tests need neither.
struct Timing {
  const Clock* clock = &SteadyClock();
  std::function<void(absl::Duration)> wait = absl::SleepFor;
};

// Polls JoinJob until the job is ready.
//
// Errors:
//   kDeadlineExceeded  not ready within `timeout`; lists what the scheduler
//                      was waiting for.
//   kUnavailable       the scheduler could not be reached within `timeout`.
//   kInternal          the answer contradicts the request: another number of
//                      ranks or layers, or this incarnation is none of them.
//   others             JoinJob's; at once.
absl::StatusOr<v1::JoinJobResponse> JoinJob(SchedulerApi& api,
                                            const v1::JoinJobRequest& request,
                                            absl::Duration timeout,
                                            const Timing& timing);

// The rendezvous board of a joined job.
//
// Thread safety: thread-safe.
// Lifetime:      the api outlives it.
class RendezvousBoard {
 public:
  RendezvousBoard(SchedulerApi* api, std::string job, int64_t world_version,
                  Timing timing)
      : api_(api),
        job_(std::move(job)),
        world_version_(world_version),
        timing_(std::move(timing)) {}

  // Retries an unreachable scheduler for up to ten seconds.
  //
  // Errors: PutRendezvous's.
  absl::Status Put(const std::string& key, const std::string& value);

  // Polls until all `keys` are there; their values in the same order.
  //
  // Errors:
  //   kDeadlineExceeded  names the keys that did not come within `timeout`.
  //   others             GetRendezvous's; at once, but kUnavailable.
  absl::StatusOr<std::vector<std::string>> Get(
      const std::vector<std::string>& keys, absl::Duration timeout);

 private:
  SchedulerApi* const api_;
  const std::string job_;
  const int64_t world_version_;
  const Timing timing_;
};

// The number of the process `incarnation` in `world`; -1 if it has none.
int RankOf(const v1::World& world, uint64_t incarnation);

// Ends the job; retries an unreachable scheduler for up to ten seconds.
// A job the scheduler does not know any more is OK.
absl::Status FinishJob(SchedulerApi& api, const v1::FinishJobRequest& request,
                       const Timing& timing);

// Renews the rank's lease on a thread of its own, whether or not anybody
// answers.
//
// Thread safety: thread-safe.
// Lifetime:      the destructor stops the thread, waiting at most one interval
//                for a call; api and callbacks outlive it.
class Heartbeats {
 public:
  struct Options {
    absl::Duration interval = absl::Seconds(1);
    // Builds the next heartbeat: step and epoch of that moment.
    std::function<v1::RankHeartbeatRequest()> request;
    // Gets every assignment the scheduler sends.
    std::function<void(const v1::Assignment&)> on_assignment;
    // Gets the scheduler's word that the world was replaced; may come again.
    std::function<void(const absl::Status&)> on_world_lost;
  };

  Heartbeats(SchedulerApi* api, Options options);
  ~Heartbeats();
  Heartbeats(const Heartbeats&) = delete;
  Heartbeats& operator=(const Heartbeats&) = delete;

  // Starts the thread; once.
  void Start();

  // One heartbeat, by the calling thread. Logs when the outcome is of another
  // kind than the last one's.
  absl::Status Beat();

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  SchedulerApi* const api_;
  const Options options_;
  std::thread thread_;

  Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::StatusCode last_ ABSL_GUARDED_BY(mu_) = absl::StatusCode::kOk;
};

}  // namespace kronserve::client

#endif  // KRONSERVE_CLIENT_SCHEDULER_CLIENT_H_
