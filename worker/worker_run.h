// One training process from its options to its exit code.
//
// Layer: worker. May include client/ and lower.

#ifndef KRONSERVE_WORKER_WORKER_RUN_H_
#define KRONSERVE_WORKER_WORKER_RUN_H_

#include "absl/status/statusor.h"
#include "worker/stop_watcher.h"
#include "worker/training/trainer.h"
#include "worker/worker_options.h"

namespace kronserve::worker {

// Loads the data, joins the job where there is one, trains, and finishes the
// job when the run ended by itself. Rank 0 writes events and progress.
//
// Errors: as LoadDataset(), Session::Join() and Train(); kFailedPrecondition
// for a file that cannot be written or a device that is not usable here.
absl::StatusOr<TrainingSummary> RunWorker(const WorkerOptions& options,
                                          StopWatcher* stop_watcher);

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_WORKER_RUN_H_
