// One rank's statistics of one step, summed over its micro-batches.
//
// Layer: worker. May include curvature/ and lower.

#ifndef KRONSERVE_WORKER_FACTOR_ACCUMULATOR_H_
#define KRONSERVE_WORKER_FACTOR_ACCUMULATOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "curvature/kronecker_factors.h"
#include "curvature/layer_shape.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "linalg/dense_kernels.h"
#include "linalg/matrix_view.h"

namespace kronserve::worker {

// What one rank, or the ranks of a node together, have of one layer.
struct LayerStatistics {
  v1::ContributionBody body = v1::CONTRIBUTION_BODY_EMPTY_UNUSED;
  // Both with data, or both without.
  curvature::FactorSum<float> input;   // A
  curvature::FactorSum<float> output;  // G
};

// Empties `statistics` as EMPTY_NON_FINITE if either sum holds a NaN or
// infinity: half of a layer is not merged.
void DropNonFinite(linalg::DenseKernels<float>& kernels,
                   LayerStatistics* statistics);

// Adds up what the hooks of a layer see. Each call is one micro-batch: its N
// and R are added once to A's sum and once to G's, which the owner divides
// each by its own.
//
// Thread safety: none.
// Lifetime:      `kernels` outlives it.
class FactorAccumulator {
 public:
  FactorAccumulator(std::vector<curvature::LayerShape> layers,
                    linalg::DenseKernels<float>* kernels);

  // Shapes as in Session::AccumulateLinear(); Check...() only looks at them.
  //
  // Errors:
  //   kInvalidArgument  unknown layer or shapes that do not fit it; names
  //                     both. Nothing was added.
  absl::Status CheckLinear(int layer, linalg::ConstMatrixView<float> inputs,
                           linalg::ConstMatrixView<float> hook_gradients,
                           int64_t loss_rows) const;
  absl::Status AddLinear(int layer, linalg::ConstMatrixView<float> inputs,
                         linalg::ConstMatrixView<float> hook_gradients,
                         int64_t loss_rows);

  // As above, for Session::AccumulateConv().
  absl::Status CheckConv(int layer, const curvature::ConvGeometry& geometry,
                         linalg::ConstMatrixView<float> images,
                         linalg::ConstMatrixView<float> hook_gradients,
                         int64_t loss_rows) const;
  absl::Status AddConv(int layer, const curvature::ConvGeometry& geometry,
                       linalg::ConstMatrixView<float> images,
                       linalg::ConstMatrixView<float> hook_gradients,
                       int64_t loss_rows);

  // The sums of every layer, in layer order; the next ones start from nothing.
  std::vector<LayerStatistics> TakeAll();

 private:
  struct Sums {
    bool used = false;
    curvature::FactorSum<float> input;
    curvature::FactorSum<float> output;
  };

  absl::Status CheckCommon(int layer, int64_t input_rows, int64_t hook_rows,
                           int64_t loss_rows) const;

  const std::vector<curvature::LayerShape> layers_;
  linalg::DenseKernels<float>* const kernels_;
  std::vector<Sums> sums_;
};

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_FACTOR_ACCUMULATOR_H_
