#include "worker/gradient_replacer.h"

#include <cmath>

namespace kronserve::worker {
namespace {

// to := scale * from; a scale of 1 keeps the bits, one of 0 gives zeros even
// where `from` is not finite.
void Scale(double scale, const float* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) {
    to[i] = scale == 0 ? 0.0f : static_cast<float>(scale * double{from[i]});
  }
}

}  // namespace

double GradientReplacer::Replace(
    const std::vector<AgreedLayer>& agreed, const ClipSettings& settings,
    const std::vector<linalg::MatrixView<float>>& gradients) {
  std::vector<curvature::LayerStep> steps(agreed.size());
  for (size_t i = 0; i < agreed.size(); ++i) {
    const float* v = agreed[i].values;
    const float* d = gradients[i].data;
    const int64_t n = gradients[i].size();
    Norms& norms = norms_[i];
    steps[i].preconditioned = v != nullptr;
    steps[i].gradient_squared = kernels_->Dot(d, d, n);
    if (v != nullptr) {
      steps[i].inner_product = agreed[i].inner_product;
      norms.v = std::sqrt(kernels_->Dot(v, v, n));
      norms.d = std::sqrt(steps[i].gradient_squared);
    } else {
      steps[i].matched_ratio =
          curvature::MatchedRatio(norms.v, norms.d, settings.damping);
    }
  }
  const curvature::StepScale scale =
      curvature::ClipStep(steps, settings.lr, settings.kl_clip, fallback_);
  for (size_t i = 0; i < agreed.size(); ++i) {
    float* const d = gradients[i].data;
    Scale(scale.layer_scales[i],
          agreed[i].values != nullptr ? agreed[i].values : d,
          gradients[i].size(), d);
  }
  return scale.nu;
}

}  // namespace kronserve::worker
