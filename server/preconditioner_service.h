// The data path over gRPC: one reactor per call.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.

#ifndef KRONSERVE_SERVER_PRECONDITIONER_SERVICE_H_
#define KRONSERVE_SERVER_PRECONDITIONER_SERVICE_H_

#include "kronserve/v1/preconditioner.grpc.pb.h"
#include "server/precondition_service.h"
#include "server/push_factors_service.h"
#include "server/server_runtime.h"

namespace kronserve::server {

// Thread safety: thread-safe.
// Lifetime:      `runtime` outlives it; it outlives the endpoint.
class PreconditionerService final : public v1::Preconditioner::CallbackService {
 public:
  explicit PreconditionerService(ServerRuntime* runtime) : runtime_(runtime) {}

  grpc::ServerReadReactor<v1::PushFactorsRequest>* PushFactors(
      grpc::CallbackServerContext* context,
      v1::PushFactorsResponse* response) override {
    return new PushFactorsCall(runtime_, context, response);
  }

  grpc::ServerBidiReactor<v1::PreconditionRequest, v1::PreconditionResponse>*
  Precondition(grpc::CallbackServerContext* context) override {
    return new PreconditionCall(runtime_, context);
  }

 private:
  ServerRuntime* const runtime_;
};

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_PRECONDITIONER_SERVICE_H_
