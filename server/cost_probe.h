// What a refresh costs on this machine, measured at start.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.

#ifndef KRONSERVE_SERVER_COST_PROBE_H_
#define KRONSERVE_SERVER_COST_PROBE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "kronserve/v1/scheduler.pb.h"
#include "linalg/backend.h"

namespace kronserve::server {

struct CostSample {
  int64_t d = 1;       // Side of the factor.
  double seconds = 0;  // Of one Cholesky factorisation.
};

// The curve a + b d^2 + c d^3 with a, b, c >= 0 of least squared relative
// error; at least three samples with seconds above 0.
v1::CostCurve FitCostCurve(const std::vector<CostSample>& samples);

// Times Cholesky factorisations of sides 64, 256 and 512: the best of several,
// as many as fit into `budget` (at least one each).
//
// Errors:
//   kFailedPrecondition  the device is not usable here.
absl::StatusOr<v1::CostCurve> MeasureCostCurve(linalg::Device device,
                                               absl::Duration budget,
                                               const Clock& clock);

// placement/cost_curve.h's default.
v1::CostCurve DefaultCostCurve();

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_COST_PROBE_H_
