#include "curvature/clipping.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

namespace kronserve::curvature {
namespace {

// What a layer adds to the sum of inner products.
double KlTerm(const LayerStep& layer, Fallback fallback) {
  if (layer.preconditioned) return layer.inner_product;
  if (fallback != Fallback::kMatched) return 0;
  return layer.matched_ratio * layer.gradient_squared;
}

// What V or D of a layer is multiplied by.
double LayerScale(const LayerStep& layer, Fallback fallback, double nu) {
  if (layer.preconditioned) return nu;
  switch (fallback) {
    case Fallback::kMatched:
      return nu * layer.matched_ratio;
    case Fallback::kPlain:
      return 1;
    case Fallback::kSkip:
      return 0;
  }
  return 1;
}

}  // namespace

double MatchedRatio(double norm_v, double norm_d, double damping) {
  if (!(norm_v > 0) || !(norm_d > 0)) return 1;
  const double ratio = norm_v / norm_d;
  if (!std::isfinite(ratio)) return 1;
  return damping > 0 ? std::min(ratio, 1 / damping) : ratio;
}

StepScale ClipStep(const std::vector<LayerStep>& layers, double lr,
                   std::optional<double> kl_clip, Fallback fallback) {
  StepScale result;
  double sum = 0;
  for (const LayerStep& layer : layers) sum += KlTerm(layer, fallback);
  const double change = std::abs(lr * lr * sum);
  if (kl_clip.has_value() && std::isfinite(change) && change > 0) {
    result.nu = std::min(1.0, std::sqrt(*kl_clip / change));
  }
  for (const LayerStep& layer : layers) {
    result.layer_scales.push_back(LayerScale(layer, fallback, result.nu));
  }
  return result;
}

}  // namespace kronserve::curvature
