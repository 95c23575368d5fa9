// Job checkpoints as the trainer sees them: the servers write the layers, rank
// 0 writes what the trainer holds beside them.
//
// Layer: worker. May include client/ and lower.
// docs/elastic.md says how a run resumes from one.

#ifndef KRONSERVE_WORKER_JOB_CHECKPOINTS_H_
#define KRONSERVE_WORKER_JOB_CHECKPOINTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/scheduler_api.h"
#include "common/mutex.h"
#include "worker/training/training_state.h"

namespace kronserve::worker {

// DIR/JOB/checkpoints/ID/TRAINER, DIR being the servers' checkpoint directory.
std::string TrainerFile(const std::string& directory, const std::string& job,
                        const std::string& id);

// Restores parameters and optimizer from the trainer's part of a checkpoint;
// returns the step to go on with.
//
// Errors:
//   As ReadTrainerBytes() and DecodeTrainingState(); each names the file.
absl::StatusOr<int64_t> ReadTrainerFile(const std::string& path,
                                        const TrainingStateParts& parts);

// Asks for a job checkpoint every so many steps, keeps the state of the step
// that the scheduler cuts after, and writes it when the servers are done. So
// the file is there only when the whole checkpoint is.
//
// Calls and files are on a thread of its own: a slow scheduler or disk holds no
// step back. What fails is logged and tried again at the next interval.
//
// Thread safety: AfterStep() and WaitUntilIdle() are called from one thread.
class JobCheckpoints {
 public:
  struct Options {
    std::string job;
    std::string directory;
    int64_t every = 0;         // Steps; above 0.
    uint64_t incarnation = 0;  // Makes ids of two runs differ.
    absl::Duration poll = absl::Milliseconds(200);
    // One checkpoint at most; then it counts as failed.
    absl::Duration patience = absl::Minutes(2);
  };

  JobCheckpoints(const Options& options,
                 std::unique_ptr<client::SchedulerApi> scheduler);
  ~JobCheckpoints();
  JobCheckpoints(const JobCheckpoints&) = delete;
  JobCheckpoints& operator=(const JobCheckpoints&) = delete;

  // `step` was taken: `parts` is ready for the next one.
  void AfterStep(int64_t step, const TrainingStateParts& parts)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Waits until no checkpoint is under way whose step was taken, or is not
  // known yet, at most `timeout`; false if one still is.
  bool WaitUntilIdle(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Begins a checkpoint when one is due; true when the step is the cut's.
  bool Took(int64_t step) ABSL_LOCKS_EXCLUDED(mu_);
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // The next checkpoint to follow; nothing when the process ends.
  std::optional<std::string> NextAsked() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Write(const std::string& id) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status WriteFile(const std::string& id, const std::string& state);

  const Options options_;
  const std::unique_ptr<client::SchedulerApi> scheduler_;

  Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::string id_ ABSL_GUARDED_BY(mu_);       // Under way; empty: none.
  int64_t cut_ ABSL_GUARDED_BY(mu_) = -1;     // Its step, once it is known.
  int64_t newest_ ABSL_GUARDED_BY(mu_) = -1;  // Step taken.
  std::string state_ ABSL_GUARDED_BY(mu_);    // After cut_.
  std::thread thread_;
};

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_JOB_CHECKPOINTS_H_
