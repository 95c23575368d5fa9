// The status that ends a data call, with what travels beside it.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.

#ifndef KRONSERVE_SERVER_CALL_STATUS_SERVICE_H_
#define KRONSERVE_SERVER_CALL_STATUS_SERVICE_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace kronserve::server {

// As ToGrpcStatus(); an assignment that is attached to `status` goes into the
// trailing metadata "kronserve-assignment-bin", and its list of layers to
// "kronserve-elsewhere-bin". Before Finish() only.
grpc::Status ToCallStatus(const absl::Status& status,
                          grpc::CallbackServerContext* context);

// Time until the caller's deadline, at least 0; InfiniteDuration() without one.
absl::Duration TimeLeft(const grpc::CallbackServerContext& context);

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_CALL_STATUS_SERVICE_H_
