#include "scheduler/scheduler_runtime.h"

#include <utility>
#include <variant>

#include "common/log.h"
#include "common/status_macros.h"

namespace kronserve::scheduler {
namespace {

constexpr absl::Duration kCloseIdleEvery = absl::Minutes(1);

}  // namespace

absl::StatusOr<std::unique_ptr<SchedulerRuntime>> SchedulerRuntime::Create(
    CoreOptions options, RuntimeDependencies dependencies) {
  options.store = dependencies.store->Describe();
  StateMap stored;
  KRONSERVE_ASSIGN_OR_RETURN(const uint64_t term,
                             RaiseTerm(dependencies.store.get(), &stored));
  KRONSERVE_ASSIGN_OR_RETURN(
      std::unique_ptr<SchedulerCore> core,
      SchedulerCore::Create(options, stored, term, dependencies.clock->Now()));
  return std::unique_ptr<SchedulerRuntime>(
      new SchedulerRuntime(options, std::move(dependencies), std::move(core)));
}

SchedulerRuntime::SchedulerRuntime(const CoreOptions& options,
                                   RuntimeDependencies dependencies,
                                   std::unique_ptr<SchedulerCore> core)
    : options_(options),
      dependencies_(std::move(dependencies)),
      core_(std::move(core)),
      effects_(std::make_unique<TaskPool>("sched-effects", 1)),
      ticker_([this] { TickLoop(); }) {}

SchedulerRuntime::~SchedulerRuntime() { Stop(); }

void SchedulerRuntime::Stop(bool finish_writes) {
  if (!finish_writes) drop_writes_ = true;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    stopped_.NotifyAll();
  }
  if (ticker_.joinable()) ticker_.join();
  dependencies_.link->Stop();
  // Queued writes end here; calls among them end as cancelled.
  effects_.reset();
}

void SchedulerRuntime::TickLoop() {
  absl::Time close_idle = dependencies_.clock->Now() + kCloseIdleEvery;
  while (true) {
    {
      MutexLock lock(&mu_);
      if (!stopping_) stopped_.WaitFor(&mu_, options_.tick);
      if (stopping_) return;
      core_->Tick(dependencies_.clock->Now());
      StartEffectsLocked();
    }
    if (dependencies_.clock->Now() < close_idle) continue;
    dependencies_.link->CloseIdle();
    close_idle = dependencies_.clock->Now() + kCloseIdleEvery;
  }
}

void SchedulerRuntime::StartEffectsLocked() {
  for (Effect& effect : core_->TakeEffects()) {
    // A later start finds in the store what was decided, and resumes.
    if (stopping_) continue;
    effects_->Submit([this, effect = std::move(effect)] { Execute(effect); });
  }
}

void SchedulerRuntime::AfterWrites(std::function<void()> task) {
  {
    MutexLock lock(&mu_);
    if (!stopping_) {
      effects_->Submit(std::move(task));
      return;
    }
  }
  task();
}

void SchedulerRuntime::Execute(const Effect& effect) {
  std::visit([this](const auto& one) { CarryOut(one); }, effect);
}

void SchedulerRuntime::CarryOut(const PersistEffect& persist) {
  Done(persist.ticket, drop_writes_
                           ? absl::AbortedError("another scheduler leads")
                           : dependencies_.store->Write(persist.writes));
}

void SchedulerRuntime::CarryOut(const ConfigureEffect& configure) {
  dependencies_.link->Configure(configure, DoneWith(configure.ticket));
}

void SchedulerRuntime::CarryOut(const DropEffect& drop) {
  dependencies_.link->Drop(drop, DoneWith(drop.ticket));
}

void SchedulerRuntime::CarryOut(const WriteCheckpointEffect& write) {
  dependencies_.link->WriteCheckpoint(
      write, [this, ticket = write.ticket](const auto& response) {
        Run([&](SchedulerCore* core, absl::Time now) {
          core->CheckpointWritten(ticket, response, now);
          return true;
        });
      });
}

void SchedulerRuntime::CarryOut(const CommitCheckpointEffect& commit) {
  dependencies_.link->CommitCheckpoint(commit, DoneWith(commit.ticket));
}

void SchedulerRuntime::CarryOut(const LogEffect& line) {
  Log(line.level, line.message);
}

std::function<void(const absl::Status&)> SchedulerRuntime::DoneWith(
    uint64_t ticket) {
  return [this, ticket](const absl::Status& status) { Done(ticket, status); };
}

void SchedulerRuntime::Done(uint64_t ticket, const absl::Status& status) {
  Run([&](SchedulerCore* core, absl::Time now) {
    core->EffectDone(ticket, status, now);
    return true;
  });
}

}  // namespace kronserve::scheduler
