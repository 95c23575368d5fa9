#include "curvature/damping.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace kronserve::curvature {
namespace {

constexpr double kPiMax = 1e12;

bool IsUsable(double trace) { return std::isfinite(trace) && trace > 0; }

}  // namespace

FactoredDamping SplitDamping(double trace_a, int64_t d_in, double trace_g,
                             int64_t d_out, double damping) {
  FactoredDamping split;
  if (IsUsable(trace_a) && IsUsable(trace_g)) {
    // Two roots, since the ratio itself may leave the range of a double.
    const double pi = std::sqrt(trace_a / d_in) / std::sqrt(trace_g / d_out);
    split.pi = std::clamp(pi, 1 / kPiMax, kPiMax);
    split.clipped = split.pi != pi;
  }
  split.gamma_a = split.pi * std::sqrt(damping);
  split.gamma_g = std::sqrt(damping) / split.pi;
  return split;
}

}  // namespace kronserve::curvature
