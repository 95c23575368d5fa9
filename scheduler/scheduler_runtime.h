// Drives a SchedulerCore: one lock, the passing of time, and its effects.
//
// Layer: scheduler. May include common/, proto/ and placement/.

#ifndef KRONSERVE_SCHEDULER_SCHEDULER_RUNTIME_H_
#define KRONSERVE_SCHEDULER_SCHEDULER_RUNTIME_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/task_pool.h"
#include "scheduler/scheduler_core.h"
#include "scheduler/server_link.h"
#include "scheduler/state_store.h"

namespace kronserve::scheduler {

struct RuntimeDependencies {
  const Clock* clock = nullptr;  // Outlives the runtime.
  std::unique_ptr<StateStore> store;
  std::unique_ptr<ServerLink> link;
};

// Threads: callers of Run(), one that ticks, and one that carries out effects
// in their order, so that a write is done before what waits for it is sent,
// and a slow disk holds up no heartbeat.
//
// Thread safety: thread-safe.
class SchedulerRuntime {
 public:
  // Raises the term in the store and takes up what is stored there.
  // `options.store` is filled in.
  //
  // Errors: as StateStore and SchedulerCore::Create().
  static absl::StatusOr<std::unique_ptr<SchedulerRuntime>> Create(
      CoreOptions options, RuntimeDependencies dependencies);

  ~SchedulerRuntime();

  // Calls operation(core, now) and starts its effects. The operation does not
  // block.
  template <typename Operation>
  auto Run(const Operation& operation) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    auto result = operation(core_.get(), dependencies_.clock->Now());
    StartEffectsLocked();
    return result;
  }

  // Like Run(), but calls `respond` with the result only when what was decided
  // about `job` (empty: about servers) is stored, or with why it is not. From
  // any thread.
  template <typename Operation, typename Respond>
  void RunStored(const std::string& job, const Operation& operation,
                 Respond respond) ABSL_LOCKS_EXCLUDED(mu_) {
    uint64_t save = 0;
    auto result = Run([&](SchedulerCore* core, absl::Time now) {
      auto decided = operation(core, now);
      save = core->LastSave(job);
      return decided;
    });
    if (!result.ok()) {
      respond(std::move(result));
      return;
    }
    // Behind the writes that the operation asked for.
    AfterWrites([this, job, save, respond, result = std::move(result)] {
      const absl::Status stored = Run([&](SchedulerCore* core, absl::Time) {
        return core->Stored(job, save);
      });
      if (stored.ok()) {
        respond(result);
      } else {
        respond(stored);
      }
    });
  }

  // Ends the threads; calls are cancelled. Idempotent.
  //
  //   finish_writes  writes that were asked for are still done; false when the
  //                  store would refuse them, or keep us waiting in vain.
  void Stop(bool finish_writes = true) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  SchedulerRuntime(const CoreOptions& options, RuntimeDependencies dependencies,
                   std::unique_ptr<SchedulerCore> core);

  void AfterWrites(std::function<void()> task) ABSL_LOCKS_EXCLUDED(mu_);
  void TickLoop() ABSL_LOCKS_EXCLUDED(mu_);
  void StartEffectsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Execute(const Effect& effect) ABSL_LOCKS_EXCLUDED(mu_);
  void CarryOut(const PersistEffect& persist) ABSL_LOCKS_EXCLUDED(mu_);
  void CarryOut(const ConfigureEffect& configure) ABSL_LOCKS_EXCLUDED(mu_);
  void CarryOut(const DropEffect& drop) ABSL_LOCKS_EXCLUDED(mu_);
  void CarryOut(const WriteCheckpointEffect& write) ABSL_LOCKS_EXCLUDED(mu_);
  void CarryOut(const CommitCheckpointEffect& commit) ABSL_LOCKS_EXCLUDED(mu_);
  void CarryOut(const LogEffect& line);
  std::function<void(const absl::Status&)> DoneWith(uint64_t ticket);
  void Done(uint64_t ticket, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Constant after construction; the store belongs to the effects thread.
  const CoreOptions options_;
  const RuntimeDependencies dependencies_;

  std::atomic<bool> drop_writes_{false};
  Mutex mu_;
  CondVar stopped_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  const std::unique_ptr<SchedulerCore> core_ ABSL_PT_GUARDED_BY(mu_);

  std::unique_ptr<TaskPool> effects_;
  std::thread ticker_;
};

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_SCHEDULER_RUNTIME_H_
