// The runtime that answers calls: ours while this scheduler leads, else none.
//
// Layer: scheduler. May include common/, proto/ and placement/.

#ifndef KRONSERVE_SCHEDULER_ACTIVE_RUNTIME_H_
#define KRONSERVE_SCHEDULER_ACTIVE_RUNTIME_H_

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "scheduler/scheduler_runtime.h"

namespace kronserve::scheduler {

// In a kUnavailable of Run(): where the leader listens; empty: here.
inline constexpr char kLeaderPayload[] = "kronserve-leader";

// Leadership ends by the clock, whoever is stuck: a call that comes after it
// is not answered by a runtime that may have a successor.
//
// Thread safety: thread-safe.
class ActiveRuntime {
 public:
  template <typename Operation>
  using ResultOf =
      std::invoke_result_t<const Operation&, SchedulerCore*, absl::Time>;

  // `clock` outlives it.
  explicit ActiveRuntime(const Clock* clock) : clock_(*clock) {}

  // Calls SchedulerRuntime::Run(operation), which returns a StatusOr, and
  // blocks no longer than that.
  //
  // Errors, besides those of the operation:
  //   kUnavailable  another scheduler leads, or none; kLeaderPayload names it.
  template <typename Operation>
  ResultOf<Operation> Run(const Operation& operation) {
    const std::shared_ptr<SchedulerRuntime> runtime = Leading();
    if (runtime == nullptr) return NotLeading();
    return OfLeader(runtime->Run(operation));
  }

  // The same with SchedulerRuntime::RunStored(); `respond` takes a StatusOr.
  template <typename Operation, typename Respond>
  void RunStored(const std::string& job, const Operation& operation,
                 Respond respond) {
    const std::shared_ptr<SchedulerRuntime> runtime = Leading();
    if (runtime == nullptr) {
      respond(NotLeading());
    } else {
      runtime->RunStored(job, operation, [respond](ResultOf<Operation> result) {
        respond(OfLeader(std::move(result)));
      });
    }
  }

  // This scheduler, at `address`, leads until then. A repeat with the same
  // runtime prolongs it.
  void Lead(std::shared_ptr<SchedulerRuntime> runtime,
            const std::string& address, absl::Time until)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Another one leads; empty: nobody does.
  void Follow(const std::string& leader) ABSL_LOCKS_EXCLUDED(mu_);

  // Where the leader listens, as far as is known here.
  std::string leader() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Says of an answer that cannot be had just now that no other has it either.
  template <typename Response>
  static absl::StatusOr<Response> OfLeader(absl::StatusOr<Response> result) {
    if (!absl::IsUnavailable(result.status())) return result;
    absl::Status status = result.status();
    status.SetPayload(kLeaderPayload, absl::Cord());
    return status;
  }

  std::shared_ptr<SchedulerRuntime> Leading() const ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status NotLeading() const;

  const Clock& clock_;
  mutable Mutex mu_;
  std::shared_ptr<SchedulerRuntime> runtime_ ABSL_GUARDED_BY(mu_);
  std::string leader_ ABSL_GUARDED_BY(mu_);
  absl::Time until_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_ACTIVE_RUNTIME_H_
