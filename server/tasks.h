// The heavy work of a server as pure functions of immutable inputs.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.
// The core (server_core.h) hands these inputs out; whoever drives it runs the
// functions, on any thread, and hands the outputs back.

#ifndef KRONSERVE_SERVER_TASKS_H_
#define KRONSERVE_SERVER_TASKS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "curvature/factor_average.h"
#include "curvature/preconditioner.h"
#include "linalg/backend.h"
#include "proto/tensor_chunks.h"

namespace kronserve::server {

// One thread's tools. The working precision is float, the second rung of the
// refresh ladder double.
struct TaskTools {
  linalg::LinearAlgebra<float> working;
  linalg::LinearAlgebra<double> wide;
};

// Errors: as linalg::CreateLinearAlgebra().
absl::StatusOr<TaskTools> CreateTaskTools(linalg::Device device);

// Checks what came over the wire.
//
// Errors:
//   kInvalidArgument  the bytes do not have this checksum (both are named), or
//                     entries are NaN or infinite (their number is named).
absl::Status CheckTensor(const std::vector<float>& values, uint64_t checksum);

// The running averages of a layer: packed upper triangles, never null.
struct Averages {
  Tensor a;  // [PackedSize(d_in)]
  Tensor g;  // [PackedSize(d_out)]
};

// One round of a layer, ready to be merged.
struct MergeInput {
  struct Part {
    Tensor sum;        // Packed raw sum.
    int64_t rows = 0;  // Its share of the divisor: N for A, R for G.
  };
  int64_t d_in = 0;
  int64_t d_out = 0;
  double scale_a = 1;
  double scale_g = 1;
  curvature::FactorInit init = curvature::FactorInit::kWarm;
  double factor_decay = 0;
  int64_t k = 1;  // This is the k-th merged round of the layer.
  // In contributor order; at least one each.
  std::vector<Part> a;
  std::vector<Part> g;
  Averages before;  // Null tensors before the first merge.
};

// Adds the sums in order (in double), divides once by all their rows, applies
// the layer's scale and moves the averages.
//
// Errors:
//   kFailedPrecondition  there is nothing to divide by, or an entry of the
//                        merged factor does not fit into a float.
absl::StatusOr<Averages> RunMerge(const MergeInput& input);

struct RefreshInput {
  int64_t d_in = 0;
  int64_t d_out = 0;
  Averages averages;
  curvature::RefreshOptions options;
};

// curvature::Refresh(), which also checks its result.
//
// Errors:
//   kFailedPrecondition  every rung failed.
absl::StatusOr<curvature::Factorization<float>> RunRefresh(
    TaskTools& tools, const RefreshInput& input);

struct PreconditionInput {
  std::shared_ptr<const curvature::Factorization<float>> factorization;
  double damping = 0;  // Used by the eigen method.
  int64_t rows = 0;
  int64_t cols = 0;
  Tensor gradient;  // [rows, cols], finite.
};

struct PreconditionOutput {
  Tensor value;              // V, [rows, cols].
  double inner_product = 0;  // Sum of V * D.
  uint64_t checksum = 0;     // Of V's bytes.
};

// Errors:
//   kFailedPrecondition  the product is not finite.
absl::StatusOr<PreconditionOutput> RunPrecondition(
    TaskTools& tools, const PreconditionInput& input);

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_TASKS_H_
