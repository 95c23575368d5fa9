// Predicted seconds of a refresh.
//
// Layer: placement. May include common/ and proto/.

#ifndef KRONSERVE_PLACEMENT_COST_CURVE_H_
#define KRONSERVE_PLACEMENT_COST_CURVE_H_

#include <cstdint>

namespace kronserve::placement {

// Seconds of refreshing one factor of side d: a + b d^2 + c d^3.
//
// Source: the default is the fit of SPD-KFAC's measured inversion times
//         (arXiv 2107.06533, RTX2080Ti; METHOD.md A2.4): 95 us + 1.667 ns d^2.
//         A server measures its own at start.
struct CostCurve {
  double seconds = 95e-6;
  double seconds_per_d2 = 1.667e-9;
  double seconds_per_d3 = 0;
};

// The sums that a curve weighs; those of two factors add up.
struct RefreshWork {
  double factors = 0;
  double d2 = 0;
  double d3 = 0;
};

// One factor of side `d`, at least 1.
RefreshWork FactorWork(int64_t d);

// A [d_in, d_in] and G [d_out, d_out] of a layer.
RefreshWork LayerWork(int64_t d_in, int64_t d_out);

// In the unit of the curve's coefficients. Inline: placing 10,000 layers on
// 1,000 servers asks ten million times.
inline double RefreshSeconds(const CostCurve& curve, const RefreshWork& work) {
  return curve.seconds * work.factors + curve.seconds_per_d2 * work.d2 +
         curve.seconds_per_d3 * work.d3;
}

}  // namespace kronserve::placement

#endif  // KRONSERVE_PLACEMENT_COST_CURVE_H_
