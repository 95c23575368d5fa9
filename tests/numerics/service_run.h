// Trains a small MLP through a whole in-process cluster and keeps everything
// that can be compared.
//
// Layer: tests.

#ifndef KRONSERVE_TESTS_NUMERICS_SERVICE_RUN_H_
#define KRONSERVE_TESTS_NUMERICS_SERVICE_RUN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/numerics/reference_kfac.h"
#include "worker/training/dataset.h"

namespace kronserve::numerics {

// Layer 0 is 8 x 8 and layer 1 is 9 x 9 with the bias column, so that swapping
// A and G fits them; layer 2 is 4 x 10.
inline const std::vector<int>& Sizes() {
  static const std::vector<int> sizes = {7, 8, 9, 4};
  return sizes;
}

struct RunOptions {
  int ranks = 1;
  int servers = 2;
  int64_t steps = 8;
  int64_t batch = 24;
  int64_t micro_batches = 2;
  int64_t factor_update_steps = 1;
  int64_t inv_update_steps = 1;
  double damping = 0.5;
  double factor_decay = 0.8;
  double lr = 0.1;
  double momentum = 0.9;
  std::optional<double> kl_clip;
};

// One step as rank 0 saw it; the other ranks held the same bits.
struct StepTrace {
  std::vector<Rows> weights;    // Before the update, per layer.
  std::vector<Rows> gradients;  // As handed to the session.
  std::vector<Rows> replaced;   // As the session left them.
  Rows inputs;                  // The global batch.
  std::vector<int> labels;
};

struct Trace {
  std::vector<StepTrace> steps;
  std::vector<Rows> final_weights;
  uint64_t hash = 0;  // Of the bits of everything the session returned.
};

// A fixed classification problem: clusters of points with noise.
worker::Dataset ClusteredPoints();

// Trains in deterministic mode with SGD and momentum.
//
// Errors: those of the cluster and session; kInternal when ranks differ or a
// layer fell back.
absl::StatusOr<Trace> TrainThroughService(const RunOptions& options);

}  // namespace kronserve::numerics

#endif  // KRONSERVE_TESTS_NUMERICS_SERVICE_RUN_H_
