// A whole scheduler: what kronserve-scheduler runs, and what an in-process
// cluster starts.
//
// Layer: scheduler. May include common/, proto/ and placement/.

#ifndef KRONSERVE_SCHEDULER_SCHEDULER_PROCESS_H_
#define KRONSERVE_SCHEDULER_SCHEDULER_PROCESS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "scheduler/election.h"
#include "scheduler/scheduler_options.h"
#include "scheduler/state_store.h"

namespace kronserve::scheduler {

// Thread safety: Shutdown() and Kill() by one thread; the others by any.
class SchedulerProcess {
 public:
  // The only scheduler of its cluster. Serves and leads when it returns.
  // `options.store` is not looked at: the caller brings `store`, from memory/
  // or sqlite/factory.h.
  //
  // Errors:
  //   kInvalidArgument     the listen address is malformed.
  //   kFailedPrecondition  the address cannot be bound, or the address file
  //                        cannot be written.
  //   kDataLoss, kUnavailable   the store cannot be read or written.
  static absl::StatusOr<std::unique_ptr<SchedulerProcess>> Start(
      const SchedulerOptions& options, std::unique_ptr<StateStore> store);

  // One of several, of which one leads; from etcd/factory.h. Serves when it
  // returns, if only to say who leads; its store need not be there yet.
  //
  // Errors: as above, but for those of the store.
  static absl::StatusOr<std::unique_ptr<SchedulerProcess>> Start(
      const SchedulerOptions& options, std::unique_ptr<Election> election);

  // As Kill().
  virtual ~SchedulerProcess() = default;

  // host:port where it listens.
  virtual const std::string& address() const = 0;

  // Resigns. Not healthy at once; refuses new calls, lets those under way end,
  // cancels what is left after `grace`. Idempotent.
  virtual void Shutdown(absl::Duration grace) = 0;

  // Cuts every connection at once, as if the process had died. Idempotent.
  virtual void Kill() = 0;
};

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_SCHEDULER_PROCESS_H_
