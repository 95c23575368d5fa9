// Layers that come from other servers, over gRPC.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.

#ifndef KRONSERVE_SERVER_LAYER_TRANSFER_SERVICE_H_
#define KRONSERVE_SERVER_LAYER_TRANSFER_SERVICE_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <optional>

#include "common/mutex.h"
#include "kronserve/v1/preconditioner.grpc.pb.h"
#include "proto/tensor_chunks.h"
#include "server/server_runtime.h"

namespace kronserve::server {

// One TransferLayer call: reads the header and the chunks, hands the tensors
// to the runtime, answers when the layer is installed.
//
// Thread safety: gRPC's, as of PushFactorsCall.
// Lifetime:      deletes itself in OnDone().
class TransferLayerCall final
    : public grpc::ServerReadReactor<v1::TransferLayerRequest> {
 public:
  // `runtime` outlives the call.
  TransferLayerCall(ServerRuntime* runtime,
                    grpc::CallbackServerContext* context,
                    v1::TransferLayerResponse* response);

  void OnReadDone(bool ok) override;
  void OnDone() override;

 private:
  // Takes one message; an error ends the call.
  absl::Status Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status TakeHeader() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Every tensor has all its bytes.
  absl::Status CheckComplete() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Install() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void End(const absl::Status& status);

  ServerRuntime* const runtime_;
  grpc::CallbackServerContext* const context_;
  v1::TransferLayerResponse* const response_;

  // Never waited for; see PushFactorsCall.
  mutable Mutex mu_;
  v1::TransferLayerRequest request_;
  v1::TransferLayerHeader header_ ABSL_GUARDED_BY(mu_);
  // From the header until it is installed.
  std::optional<TransferTicket> ticket_ ABSL_GUARDED_BY(mu_);
  std::optional<ChunkAssembler> assembler_ ABSL_GUARDED_BY(mu_);
};

// Thread safety: thread-safe.
// Lifetime:      `runtime` outlives it; it outlives the endpoint.
class LayerTransferService final : public v1::LayerTransfer::CallbackService {
 public:
  explicit LayerTransferService(ServerRuntime* runtime) : runtime_(runtime) {}

  grpc::ServerReadReactor<v1::TransferLayerRequest>* TransferLayer(
      grpc::CallbackServerContext* context,
      v1::TransferLayerResponse* response) override {
    return new TransferLayerCall(runtime_, context, response);
  }

 private:
  ServerRuntime* const runtime_;
};

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_LAYER_TRANSFER_SERVICE_H_
