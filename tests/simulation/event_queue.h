// The simulated clock, and everything that will happen on it.
//
// Layer: tests.

#ifndef KRONSERVE_TESTS_SIMULATION_EVENT_QUEUE_H_
#define KRONSERVE_TESTS_SIMULATION_EVENT_QUEUE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace kronserve::simulation {

using Action = std::function<void()>;

// One life of a process: a restart is another Process. What happens to it is
// lost once it is dead, and waits while it is frozen.
class Process {
 public:
  explicit Process(std::string name) : name_(std::move(name)) {}
  const std::string& name() const { return name_; }
  bool alive() const { return alive_; }
  bool frozen() const { return frozen_; }

 private:
  friend class EventQueue;
  const std::string name_;
  bool alive_ = true;
  bool frozen_ = false;
  std::vector<Action> held_;  // What came while it was frozen, in order.
};
using ProcessPtr = std::shared_ptr<Process>;

// Thread safety: none.
// Invariants:    time never goes back; events of one time run in the order in
//                which they were added, so a seed gives one run.
class EventQueue {
 public:
  absl::Time now() const { return now_; }

  // `process` may be null: then nothing stops the event.
  void At(absl::Time time, ProcessPtr process, Action action);
  void After(absl::Duration delay, ProcessPtr process, Action action) {
    At(now_ + delay, std::move(process), std::move(action));
  }

  // Runs the next event that is due by `end`; false if there is none. Then the
  // time is `end`.
  bool RunOne(absl::Time end);

  void Kill(Process* process);
  void Freeze(Process* process) { process->frozen_ = true; }
  // What was held back happens now, in its order.
  void Thaw(const ProcessPtr& process);

  int64_t events_run() const { return events_run_; }

 private:
  struct Event {
    absl::Time time;
    uint64_t order = 0;
    ProcessPtr process;
    Action action;
  };
  static bool Later(const Event& a, const Event& b) {
    return a.time != b.time ? a.time > b.time : a.order > b.order;
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  uint64_t next_order_ = 0;
  int64_t events_run_ = 0;
  std::vector<Event> heap_;
};

}  // namespace kronserve::simulation

#endif  // KRONSERVE_TESTS_SIMULATION_EVENT_QUEUE_H_
