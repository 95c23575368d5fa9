// KL clipping over the whole model, and what a layer that fell back becomes.
//
// Layer: curvature. May include linalg/ and common/.
// Source: PROTOCOL.md 7; METHOD.md B6.

#ifndef KRONSERVE_CURVATURE_CLIPPING_H_
#define KRONSERVE_CURVATURE_CLIPPING_H_

#include <optional>
#include <vector>

namespace kronserve::curvature {

enum class Fallback { kMatched, kPlain, kSkip };

// One layer of one step, as all ranks agreed on it.
struct LayerStep {
  bool preconditioned = false;
  double inner_product = 0;     // <V, D>, when preconditioned.
  double gradient_squared = 0;  // <D, D>, when it fell back.
  // r = |V| / |D| of the last agreed step, when it fell back; see MatchedRatio.
  double matched_ratio = 1;
};

// r of PROTOCOL.md 7: |V| / |D| capped at 1 / damping; 1 before any step was
// preconditioned (`norm_v` or `norm_d` not above 0). damping 0 caps nothing.
double MatchedRatio(double norm_v, double norm_d, double damping);

struct StepScale {
  double nu = 1;                     // The KL factor.
  std::vector<double> layer_scales;  // Per layer: multiply V or D by this.
};

// Computes nu = min(1, sqrt(kl_clip / |lr^2 sum|)) in layer order, in double,
// and what every layer is scaled by: nu for a preconditioned one; nu r, 1 or 0
// for one that fell back under kMatched, kPlain, kSkip.
//
//   kl_clip  above 0, or absent: nu = 1. A zero or non-finite sum gives 1.
StepScale ClipStep(const std::vector<LayerStep>& layers, double lr,
                   std::optional<double> kl_clip, Fallback fallback);

}  // namespace kronserve::curvature

#endif  // KRONSERVE_CURVATURE_CLIPPING_H_
