// The scheduler's commands over gRPC.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.

#ifndef KRONSERVE_SERVER_SERVER_CONTROL_SERVICE_H_
#define KRONSERVE_SERVER_SERVER_CONTROL_SERVICE_H_

#include "kronserve/v1/preconditioner.grpc.pb.h"
#include "server/server_runtime.h"

namespace kronserve::server {

// Thread safety: thread-safe.
// Lifetime:      `runtime` outlives it; it outlives the endpoint.
class ServerControlService final : public v1::ServerControl::CallbackService {
 public:
  explicit ServerControlService(ServerRuntime* runtime) : runtime_(runtime) {}

  grpc::ServerUnaryReactor* ConfigureJob(
      grpc::CallbackServerContext* context,
      const v1::ConfigureJobRequest* request,
      v1::ConfigureJobResponse* response) override;
  grpc::ServerUnaryReactor* DropJob(grpc::CallbackServerContext* context,
                                    const v1::DropJobRequest* request,
                                    v1::DropJobResponse* response) override;
  grpc::ServerUnaryReactor* WriteCheckpoint(
      grpc::CallbackServerContext* context,
      const v1::WriteCheckpointRequest* request,
      v1::WriteCheckpointResponse* response) override;
  grpc::ServerUnaryReactor* CommitCheckpoint(
      grpc::CallbackServerContext* context,
      const v1::CommitCheckpointRequest* request,
      v1::CommitCheckpointResponse* response) override;
  grpc::ServerUnaryReactor* GetServerStatus(
      grpc::CallbackServerContext* context,
      const v1::GetServerStatusRequest* request,
      v1::GetServerStatusResponse* response) override;

 private:
  ServerRuntime* const runtime_;
};

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_SERVER_CONTROL_SERVICE_H_
