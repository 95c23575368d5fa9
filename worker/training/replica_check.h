// Proof that all ranks hold the same parameters.
//
// Layer: worker. May include linalg/ and common/.

#ifndef KRONSERVE_WORKER_TRAINING_REPLICA_CHECK_H_
#define KRONSERVE_WORKER_TRAINING_REPLICA_CHECK_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "linalg/matrix_view.h"
#include "worker/collective/communicator.h"

namespace kronserve::worker {

// One number for all bytes of `parameters`, in order.
uint64_t HashParameters(
    const std::vector<linalg::MatrixView<float>>& parameters);

// Compares `hash` over the ranks of `group`.
//
// Errors:
//   kDataLoss  the ranks differ, on every rank; names `step` and this rank's
//              hash.
//   As Communicator.
absl::Status CheckSameHash(Communicator& group, int64_t step, uint64_t hash);

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_TRAINING_REPLICA_CHECK_H_
