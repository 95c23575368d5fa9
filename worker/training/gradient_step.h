// One rank's share of a step: its rows, its gradients, their average.
//
// Layer: worker. May include client/ and lower. Private to the trainer.

#ifndef KRONSERVE_WORKER_TRAINING_GRADIENT_STEP_H_
#define KRONSERVE_WORKER_TRAINING_GRADIENT_STEP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "worker/training/batches.h"
#include "worker/training/trainer.h"

namespace kronserve::worker {

// Owns the gradients of a step in one stretch of memory, so that one
// all-reduce averages them.
//
// Thread safety: none.
// Lifetime:      `parts` outlives it.
class GradientStep {
 public:
  explicit GradientStep(const TrainerParts& parts);

  // Forward and backward over this rank's part of the `batch` global rows, in
  // `accumulation` micro-batches; feeds the session. Leaves the sum over them
  // of (rows / batch) * gradient, so that adding up the ranks gives the mean
  // over the global batch, whatever the sizes.
  absl::Status Compute(int64_t step, const int64_t* rows, int64_t batch,
                       int64_t accumulation);

  // Adds up gradients, loss and stop requests over the ranks.
  absl::Status Average();

  // After Average(): as all ranks see them.
  double loss() const { return sums_[gradient_size_]; }
  bool stop_requested() const { return sums_[gradient_size_ + 1] > 0; }
  // [layers] of [d_out, d_in], writable.
  const std::vector<linalg::MatrixView<float>>& gradients() const {
    return gradients_;
  }

 private:
  absl::Status ComputePart(int64_t step, const int64_t* rows, int64_t count,
                           int64_t batch);
  absl::Status FeedSession(int64_t step, int64_t loss_rows);

  const TrainerParts& parts_;
  int64_t gradient_size_ = 0;
  std::vector<float> sums_;  // Gradients, then loss, then stop requests.
  std::vector<linalg::MatrixView<float>> gradients_;  // Into sums_.
  linalg::Matrix<float> inputs_;
  std::vector<uint8_t> labels_;
};

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_TRAINING_GRADIENT_STEP_H_
