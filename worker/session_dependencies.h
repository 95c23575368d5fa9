// What a session reaches the world through; tests replace parts of it.
//
// Layer: worker. May include client/ and lower.

#ifndef KRONSERVE_WORKER_SESSION_DEPENDENCIES_H_
#define KRONSERVE_WORKER_SESSION_DEPENDENCIES_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/include/kronserve/client.h"
#include "curvature/layer_shape.h"
#include "worker/session.h"

namespace kronserve::worker {

struct SessionDependencies {
  // Given the scheduler's address.
  std::function<client::ClientDependencies(const std::string&)> connect =
      &client::GrpcDependencies;
  const Clock* clock = &SteadyClock();  // Measures StepResult::waited.
};

// Session::Join() with these dependencies.
absl::StatusOr<std::unique_ptr<Session>> JoinWithDependencies(
    const SessionOptions& options,
    const std::vector<curvature::LayerShape>& layers,
    const CommunicatorFactory& groups, const SessionDependencies& dependencies);

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_SESSION_DEPENDENCIES_H_
