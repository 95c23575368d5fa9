// Loss and accuracy on the test set.
//
// Layer: worker. May include linalg/ and common/. Private to the trainer.

#ifndef KRONSERVE_WORKER_TRAINING_EVALUATION_H_
#define KRONSERVE_WORKER_TRAINING_EVALUATION_H_

#include "absl/status/statusor.h"
#include "worker/collective/communicator.h"
#include "worker/training/dataset.h"
#include "worker/training/model.h"

namespace kronserve::worker {

struct Evaluation {
  double loss = 0;
  double accuracy = 0;
};

// Runs the model over `dataset`.test, split over the ranks of `group` (null:
// one rank). The same numbers on every rank; the accuracy is exact for test
// sets below 2^24 rows.
//
// Errors: as Communicator.
absl::StatusOr<Evaluation> Evaluate(const Dataset& dataset, Model<float>* model,
                                    Communicator* group);

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_TRAINING_EVALUATION_H_
