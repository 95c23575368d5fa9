// What follows from a job's configuration alone.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.

#ifndef KRONSERVE_SERVER_JOB_PLAN_H_
#define KRONSERVE_SERVER_JOB_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kronserve/v1/job.pb.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "server/layer_state.h"

namespace kronserve::server {

struct JobPlan {
  // [layers].
  std::vector<LayerRules> layers;
  // [layers][...]: ranks that a factor round of the layer waits for.
  std::vector<std::vector<int>> contributors;
};

// `config` passed CheckConfigure().
JobPlan MakeJobPlan(const v1::JobConfig& config);

// Checks a configuration against itself.
//
// Errors:
//   kInvalidArgument  names what contradicts what.
absl::Status CheckConfigure(const v1::ConfigureJobRequest& request);

// Layers that `server` owns, ascending.
std::vector<int> OwnedLayers(const v1::JobConfig& config,
                             const std::string& server);

// Predicted bytes of the job on a server that holds `layers` of it
// (placement/memory_model.h).
int64_t PredictBytes(const v1::JobConfig& config,
                     const std::vector<int>& layers, int64_t refresh_threads);

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_JOB_PLAN_H_
