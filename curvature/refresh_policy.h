// Which steps build factors, and when which layer is refreshed.
//
// Layer: curvature. May include linalg/ and common/.
// A pure function of the options, evaluated by servers and ranks alike.
// Source: PROTOCOL.md 4; METHOD.md D11.

#ifndef KRONSERVE_CURVATURE_REFRESH_POLICY_H_
#define KRONSERVE_CURVATURE_REFRESH_POLICY_H_

#include <cstdint>
#include <vector>

namespace kronserve::curvature {

enum class RefreshSchedule { kStaggered, kAligned };

struct RefreshIntervals {
  int64_t factor_update_steps = 1;  // >= 1
  int64_t inv_update_steps = 1;     // >= 1
  RefreshSchedule schedule = RefreshSchedule::kStaggered;
};

// True when ranks contribute factors at `step`.
bool IsFactorStep(const RefreshIntervals& intervals, int64_t step);

// The newest factor step <= `step`.
int64_t LastFactorStep(const RefreshIntervals& intervals, int64_t step);

// Per layer, the remainder step % inv_update_steps at which it is refreshed:
// 0 for kAligned; for kStaggered the layers are dealt out heaviest first, each
// to the phase with the least cost so far (lowest phase on a tie).
//
//   refresh_costs  [layers], predicted seconds or any other positive weight.
std::vector<int64_t> RefreshPhases(const RefreshIntervals& intervals,
                                   const std::vector<double>& refresh_costs);

// The newest step <= `step` at which a layer of phase `phase` is scheduled,
// or -1 when there is none. `first_step` (the layer's first round) is always
// one; steps before it never are.
int64_t DueStep(const RefreshIntervals& intervals, int64_t phase,
                int64_t first_step, int64_t step);

}  // namespace kronserve::curvature

#endif  // KRONSERVE_CURVATURE_REFRESH_POLICY_H_
