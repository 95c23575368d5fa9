// A training run over all the worlds of its job.
//
// Layer: worker. May include client/ and lower.
// docs/elastic.md has the rule by which ranks find the next world.

#ifndef KRONSERVE_WORKER_WORLDS_H_
#define KRONSERVE_WORKER_WORLDS_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "client/scheduler_client.h"
#include "worker/elastic_join.h"
#include "worker/session.h"
#include "worker/stop_watcher.h"
#include "worker/training/trainer.h"

namespace kronserve::worker {

struct WorldsOptions {
  SessionOptions session;
  TrainerOptions trainer;
  bool elastic = false;
  int64_t max_restarts = 0;  // Worlds after the first; with elastic.
};

struct WorldsParts {
  TrainerParts trainer;  // Without group, session and progress.
  JoinOnce join;
  client::Timing timing;
  StopWatcher* stop_watcher = nullptr;  // May be null.
  // Called when the last step was taken, before the job is finished; or null.
  std::function<void()> before_finish;
};

// Joins the job, trains, and finishes the job when the run ended by itself.
//
// Elastic: when the job group breaks or the scheduler says that the world was
// replaced, joins again and goes on with the step that was not finished. A new
// rank takes parameters and optimizer state from the lowest rank that has
// those of the world's first step.
//
// Errors: as Session::Join(), ShareTrainingState() and Train().
absl::StatusOr<TrainingSummary> TrainInWorlds(const WorldsOptions& options,
                                              const WorldsParts& parts);

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_WORLDS_H_
