// A scheduler that stands for election for as long as it lives.
//
// Layer: scheduler. May include common/, proto/ and placement/.

#ifndef KRONSERVE_SCHEDULER_CANDIDATE_H_
#define KRONSERVE_SCHEDULER_CANDIDATE_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "scheduler/active_runtime.h"
#include "scheduler/election.h"

namespace kronserve::scheduler {

// Campaigns again and again; opens the store and makes a runtime when it wins,
// stops that runtime when it does not lead any more.
//
// Thread safety: Start() and Stop() by one thread; Round() by the thread of
//                Start(), or by tests instead of it.
// Lifetime:      `active` and `clock` outlive it.
class Candidate {
 public:
  using RuntimeFactory =
      std::function<absl::StatusOr<std::unique_ptr<SchedulerRuntime>>(
          std::unique_ptr<StateStore>)>;

  Candidate(std::unique_ptr<Election> election, RuntimeFactory create_runtime,
            ActiveRuntime* active, const Clock* clock);
  ~Candidate();

  // Starts the thread.
  //
  //   address  where members reach this scheduler.
  void Start(const std::string& address, absl::Duration interval);

  // Ends the thread and the runtime. `resign`: another may lead at once.
  // Idempotent.
  void Stop(bool resign);

  // One campaign and what follows from it.
  void Round(const std::string& address);

 private:
  void Lead(const std::string& address, const Election::Result& result);
  void StepDown(const std::string& leader);
  void Report(const std::string& fault);

  const std::unique_ptr<Election> election_;
  const RuntimeFactory create_runtime_;
  ActiveRuntime* const active_;
  const Clock& clock_;

  // Used by the thread of Round() alone, and by Stop() after it.
  std::shared_ptr<SchedulerRuntime> runtime_;
  // Kept until the next one follows it: a call may still hold it, and its
  // last reference must not die in a gRPC callback.
  std::shared_ptr<SchedulerRuntime> retired_;
  int64_t leadership_ = 0;
  absl::Time until_ = absl::InfinitePast();
  std::string reported_;

  Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_CANDIDATE_H_
