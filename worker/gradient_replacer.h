// Writing a step's outcome into the gradients.
//
// Layer: worker. May include curvature/ and lower.

#ifndef KRONSERVE_WORKER_GRADIENT_REPLACER_H_
#define KRONSERVE_WORKER_GRADIENT_REPLACER_H_

#include <optional>
#include <vector>

#include "curvature/clipping.h"
#include "linalg/dense_kernels.h"
#include "linalg/matrix_view.h"

namespace kronserve::worker {

// One layer as all ranks agreed on it.
struct AgreedLayer {
  const float* values = nullptr;  // V; null: the layer falls back.
  double inner_product = 0;       // <V, D>, when there is V.
};

struct ClipSettings {
  double lr = 0;
  std::optional<double> kl_clip;
  double damping = 0;  // Caps the matched ratio.
};

// Replaces gradients by V or the fallback, scaled by the KL factor, and keeps
// what the matched fallback needs: the norms of each layer's last agreed step.
//
// Everything that enters is equal on all ranks and all sums run in index order
// in double, so the bytes are equal too.
//
// Thread safety: none.
// Lifetime:      `kernels` outlives it.
class GradientReplacer {
 public:
  GradientReplacer(curvature::Fallback fallback, int num_layers,
                   linalg::DenseKernels<float>* kernels)
      : fallback_(fallback), norms_(num_layers), kernels_(kernels) {}

  // Returns nu, the KL factor.
  //
  //   agreed, gradients  [layers]; V has the shape of the gradient.
  double Replace(const std::vector<AgreedLayer>& agreed,
                 const ClipSettings& settings,
                 const std::vector<linalg::MatrixView<float>>& gradients);

 private:
  struct Norms {
    double v = 0;  // |V| of the last agreed step; 0 before any.
    double d = 0;  // |D| of the same step.
  };

  const curvature::Fallback fallback_;
  std::vector<Norms> norms_;  // [layers]
  linalg::DenseKernels<float>* const kernels_;
};

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_GRADIENT_REPLACER_H_
