// Data-parallel training of a native model, with or without the service.
//
// Layer: worker. May include client/ and lower.
//
// Per step: forward and backward on this rank's rows, statistics for the
// session, gradients averaged over the job group, the session's Step(), then
// the optimizer. All ranks take every decision (stop, target, divergence) from
// reduced numbers, so they take it at the same step.

#ifndef KRONSERVE_WORKER_TRAINING_TRAINER_H_
#define KRONSERVE_WORKER_TRAINING_TRAINER_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/collective/communicator.h"
#include "worker/session.h"
#include "worker/training/dataset.h"
#include "worker/training/model.h"
#include "worker/training/optimizer.h"

namespace kronserve::worker {

// Equal on all ranks, but for `hash_log`; checked at the start.
struct TrainerOptions {
  int64_t batch = 256;       // Rows of a step, over all ranks.
  int64_t accumulation = 1;  // Micro-batches of a rank and step.
  int64_t epochs = 10;
  int64_t max_steps = 0;   // 0: as many as the epochs have.
  int64_t first_step = 0;  // The session's start_step().
  // The world before this one may have ended in the evaluation that is due
  // after the step before first_step: do it (again).
  bool repeat_evaluation = false;
  int64_t eval_every = 0;  // Steps; 0: at the end of each epoch.
  uint64_t seed = 1;       // Of the order of the rows.
  double lr = 0.1;
  bool cosine = false;    // Lets lr fall to 0 over all steps.
  StepSettings settings;  // lr is set here, step by step.
  std::optional<double> target_accuracy;
  bool stop_at_target = false;
  bool verify_replicas = false;  // Compare all ranks' parameters each step.
  // Whatever else must be the same on all ranks, such as the optimizer.
  std::string fingerprint;
  std::string hash_log;  // File for "step hash" lines; empty: none.
};

// One step as it was taken.
struct StepEvent {
  int64_t step = 0;  // From 0, as in the service's messages.
  int64_t epoch = 0;
  double loss = 0;           // Mean over the global batch, before the update.
  absl::Duration elapsed;    // Training time so far, without evaluations.
  absl::Duration waited;     // Of this step, inside Session::Step().
  absl::Duration exchanged;  // Of this step, averaging gradients.
  int layers = 0;            // 0 without the service.
  int fallbacks = 0;         // Layers that were not preconditioned.
  double nu = 1;
  uint64_t assignment_epoch = 0;
};

struct EvalEvent {
  int64_t step = 0;  // Steps taken so far.
  int64_t epoch = 0;
  double loss = 0;
  double accuracy = 0;  // Share of the test rows.
  absl::Duration elapsed;
};

// The set of layers that fall back has changed; empty: none does any more.
struct FallbackEvent {
  struct LayerFallback {
    std::string name;
    std::string reason;  // "server_suspect", ...
    std::string message;
  };
  int64_t step = 0;
  std::vector<LayerFallback> layers;
};

// The job has another world than the run began in.
struct WorldEvent {
  int64_t restart_count = 0;
  int ranks = 0;
  int rank = 0;            // This process's number among them.
  int64_t start_step = 0;  // Taken again, or the next.
};

// Watches a run. Called from the training thread, on every rank.
class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  virtual void OnStep(const StepEvent&) {}
  virtual void OnEval(const EvalEvent&) {}
  virtual void OnFallback(const FallbackEvent&) {}
  virtual void OnWorld(const WorldEvent&) {}
};

struct TrainingSummary {
  enum class End { kCompleted, kTargetReached, kStopped, kDiverged };
  End end = End::kCompleted;
  int64_t steps = 0;  // Taken in this run.
  absl::Duration elapsed;
  absl::Duration waited;
  absl::Duration exchanged;
  double last_loss = 0;
  double final_accuracy = 0;
  std::optional<int64_t> steps_to_target;
  std::optional<absl::Duration> time_to_target;
  int64_t fallback_steps = 0;  // Steps with a layer not preconditioned.
  int layers = 0;
  int layers_preconditioned = 0;               // At the last step.
  std::map<std::string, int64_t> fallen_back;  // Steps per layer name.
};

// What a run carries from one world of its job to the next.
struct TrainingProgress {
  // The parameters are ready for `step` now; a step that is repeated counts
  // once.
  void GoTo(int64_t step) {
    if (begun) summary.steps -= next_step - step;
    next_step = step;
  }

  bool begun = false;     // The parameters are some of this run.
  int64_t next_step = 0;  // Step that the parameters are ready for.
  TrainingSummary summary;
  std::vector<std::string> falling_back;  // Layers, at the last step.
};

// What a run works on; all of it outlives Train().
struct TrainerParts {
  const Dataset* dataset = nullptr;
  Model<float>* model = nullptr;
  Optimizer<float>* optimizer = nullptr;
  Communicator* group = nullptr;  // Null: one rank.
  Session* session = nullptr;     // Null: no job.
  // False: the session has no layers and only hears of the steps.
  bool precondition = true;
  TrainingObserver* observer = nullptr;
  // Set by anybody on any rank: all ranks stop after the step in progress.
  const std::atomic<bool>* stop = nullptr;
  // Where this run is, kept up to date also when Train() fails, so that
  // another call can go on. Null: one call is the run.
  TrainingProgress* progress = nullptr;
};

// Trains until the epochs, max_steps, the target or a stop end it.
//
// A loss that is not finite ends the run as kDiverged on every rank.
//
// Errors:
//   kInvalidArgument     the batch is larger than the training set, or too
//                        small for the ranks and micro-batches; or a rank has
//                        other options or initial parameters: names it.
//   kDataLoss            verify_replicas found a difference.
//   kFailedPrecondition  `hash_log` cannot be written.
//   As Session::Step() and Communicator; names the step.
absl::StatusOr<TrainingSummary> Train(const TrainerOptions& options,
                                      const TrainerParts& parts);

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_TRAINING_TRAINER_H_
