// The scheduler's process: its core, its store, its calls.
//
// Layer: tests. What scheduler/scheduler_runtime.h does with threads.

#ifndef KRONSERVE_TESTS_SIMULATION_SCHEDULER_NODE_H_
#define KRONSERVE_TESTS_SIMULATION_SCHEDULER_NODE_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/scheduler_core.h"
#include "scheduler/state_store.h"
#include "tests/simulation/environment.h"

namespace kronserve::simulation {

// What survives the process. Writes take their time in the node, which dies
// with some of them on the disk and none of them acknowledged.
class SimulatedStore final : public scheduler::StateStore {
 public:
  std::string Describe() const override { return "simulated"; }
  absl::StatusOr<scheduler::StateMap> Load() override { return durable_; }
  absl::Status Write(const scheduler::WriteBatch& batch) override;
  const scheduler::StateMap& durable() const { return durable_; }

 private:
  scheduler::StateMap durable_;
};

class SchedulerNode final : public Endpoint {
 public:
  // Starts from what `store` has.
  SchedulerNode(Environment* env, SimulatedStore* store);

  // A call of somebody's, answered by the core.
  template <typename Response>
  void Answer(const CallPtr& call,
              const std::function<absl::StatusOr<Response>(
                  scheduler::SchedulerCore*, absl::Time)>& ask,
              std::function<void(absl::StatusOr<Response>)> done) {
    absl::StatusOr<Response> response = ask(core_.get(), env_->now());
    StartEffects();
    env_->network.End(call,
                      [done = std::move(done), response = std::move(response)] {
                        done(response);
                      });
  }

  // The process dies: of the writes that were begun the disk keeps some.
  void Die();
  void SetDiskFull(bool full) { disk_full_ = full; }

  const scheduler::SchedulerCore& core() const { return *core_; }

 private:
  void Tick();
  void StartEffects();
  void Start(const scheduler::Effect& effect);
  void Persist(const scheduler::PersistEffect& effect);
  void WriteNext();
  void Configure(const scheduler::ConfigureEffect& effect);
  void Drop(const scheduler::DropEffect& effect);
  void WriteCheckpoint(const scheduler::WriteCheckpointEffect& effect);
  void CommitCheckpoint(const scheduler::CommitCheckpointEffect& effect);
  void Done(uint64_t ticket, const absl::Status& status);

  Environment* const env_;
  SimulatedStore* const store_;
  std::unique_ptr<scheduler::SchedulerCore> core_;
  std::deque<scheduler::PersistEffect> writes_;  // Begun, the first running.
  bool disk_full_ = false;
};

}  // namespace kronserve::simulation

#endif  // KRONSERVE_TESTS_SIMULATION_SCHEDULER_NODE_H_
