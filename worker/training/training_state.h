// A trainer's state between two steps, as bytes: what a rank that joins late is
// given, and what lies beside a job checkpoint.
//
// Layer: worker. May include checkpoint/ and lower.

#ifndef KRONSERVE_WORKER_TRAINING_TRAINING_STATE_H_
#define KRONSERVE_WORKER_TRAINING_TRAINING_STATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "linalg/matrix_view.h"
#include "worker/collective/communicator.h"
#include "worker/training/optimizer.h"

namespace kronserve::worker {

// What is saved and restored; both are written by a restore.
struct TrainingStateParts {
  std::vector<linalg::MatrixView<float>> parameters;
  Optimizer<float>* optimizer = nullptr;
};

// The state before `next_step`, as checkpoint/trainer_file.h describes it.
std::string EncodeTrainingState(int64_t next_step,
                                const TrainingStateParts& parts);

// Restores what EncodeTrainingState() wrote; returns its next_step.
//
// Errors (nothing changes):
//   kDataLoss          damaged, cut off, or of an unknown format version.
//   kInvalidArgument   of another model or optimizer; names the numbers.
absl::StatusOr<int64_t> DecodeTrainingState(const std::string& bytes,
                                            const TrainingStateParts& parts);

// Gives all ranks of a new world the state of the lowest rank whose next step
// is `start_step`: the others are new, or one step ahead since they heard of
// the end of a step that is repeated now. When all begin at step 0 without a
// state, nothing happens.
//
//   own_next_step  of the state this rank has; absent: none.
//
// Errors:
//   kFailedPrecondition  no rank has a state, and the job is past step 0.
//   kUnavailable  some ranks have states, but none of `start_step`: who had it
//                 was lost. The next world starts at a step that is there.
//   As DecodeTrainingState() and Communicator.
absl::Status ShareTrainingState(Communicator& group, int64_t start_step,
                                std::optional<int64_t> own_next_step,
                                const TrainingStateParts& parts);

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_TRAINING_TRAINING_STATE_H_
