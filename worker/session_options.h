// Options of a session: defaults, checks, and what the scheduler is told.
//
// Layer: worker. May include placement/ and lower.

#ifndef KRONSERVE_WORKER_SESSION_OPTIONS_H_
#define KRONSERVE_WORKER_SESSION_OPTIONS_H_

#include <vector>

#include "absl/status/status.h"
#include "curvature/clipping.h"
#include "curvature/layer_shape.h"
#include "curvature/refresh_policy.h"
#include "kronserve/v1/job.pb.h"
#include "kronserve/v1/scheduler.pb.h"
#include "linalg/matrix_view.h"
#include "placement/delegates.h"
#include "worker/session.h"

namespace kronserve::worker {

// DefaultJobOptions(), made synchronous: every answer follows the schedule
// exactly, rounds wait for every rank, and a run can be repeated.
v1::JobOptions SynchronousJobOptions();

// The registration of a rank.
v1::JoinJobRequest JoinRequest(
    const SessionOptions& options,
    const std::vector<curvature::LayerShape>& layers);

// Checks what a rank knows by itself, before anybody is asked.
//
// Errors:
//   kInvalidArgument  every fault, separated by "; ".
absl::Status ValidateJoin(const SessionOptions& options,
                          const v1::JoinJobRequest& request);

// Checks the arguments of Session::Step(), all but the step.
//
// Errors:
//   kInvalidArgument  every fault, separated by "; ".
absl::Status ValidateStep(
    const StepSettings& settings,
    const std::vector<curvature::LayerShape>& layers,
    const std::vector<linalg::MatrixView<float>>& gradients);

// The words of the protocol as those of curvature/ and placement/; the options
// were validated.
curvature::RefreshIntervals IntervalsOf(const v1::JobOptions& options);
curvature::Fallback FallbackOf(const v1::JobOptions& options);
placement::FactorSource FactorSourceOf(const v1::JobOptions& options);

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_SESSION_OPTIONS_H_
