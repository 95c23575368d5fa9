// The scheduler's calls to preconditioner servers.
//
// Layer: scheduler. May include common/, proto/ and placement/.
// The only file pair here that makes outgoing RPCs.

#ifndef KRONSERVE_SCHEDULER_SERVER_LINK_H_
#define KRONSERVE_SCHEDULER_SERVER_LINK_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "scheduler/effects.h"

namespace kronserve::scheduler {

// Starts calls and says how each ended.
//
// Thread safety: thread-safe.
class ServerLink {
 public:
  // Called exactly once per call, from any thread, also before the starting
  // method returns.
  using Done = std::function<void(const absl::Status&)>;
  using Written =
      std::function<void(const absl::StatusOr<v1::WriteCheckpointResponse>&)>;

  virtual ~ServerLink() = default;

  // Do not block. A call that has not ended after 5 s ends as
  // kDeadlineExceeded; after Stop() every call ends as kCancelled.
  virtual void Configure(const ConfigureEffect& effect, Done done) = 0;
  virtual void Drop(const DropEffect& effect, Done done) = 0;
  virtual void WriteCheckpoint(const WriteCheckpointEffect& effect,
                               Written done) = 0;
  virtual void CommitCheckpoint(const CommitCheckpointEffect& effect,
                                Done done) = 0;

  // Closes connections that had no call for a while. Not from a Done.
  virtual void CloseIdle() = 0;

  // Cancels what is under way; returns when all have ended. Idempotent.
  virtual void Stop() = 0;
};

// Over gRPC, one channel per address. `clock` outlives the link.
std::unique_ptr<ServerLink> CreateGrpcServerLink(const Clock* clock);

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_SERVER_LINK_H_
