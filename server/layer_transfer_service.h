// Layers that come from other servers, over gRPC.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.

#ifndef KRONSERVE_SERVER_LAYER_TRANSFER_SERVICE_H_
#define KRONSERVE_SERVER_LAYER_TRANSFER_SERVICE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kronserve/v1/preconditioner.grpc.pb.h"
#include "server/layer_snapshot.h"
#include "server/upload_service.h"

namespace kronserve::server {

// The state of one layer, which is installed; see upload_service.h.
struct TransferUpload {
  using Request = v1::TransferLayerRequest;
  using Header = v1::TransferLayerHeader;
  using Ticket = TransferTicket;
  using Response = v1::TransferLayerResponse;

  static absl::StatusOr<Ticket> Begin(ServerRuntime* runtime,
                                      const Header& header) {
    return runtime->BeginTransfer(header);
  }
  static std::string Name(const Header& header, int tensor) {
    return absl::StrCat("tensor ", tensor, " of layer '",
                        header.snapshot().layer().name(), "'");
  }
  static void Complete(ServerRuntime* runtime, Ticket ticket, Header header,
                       std::vector<Tensor> tensors,
                       ServerRuntime::InstallDone done) {
    LayerImage image{header.snapshot(), std::move(tensors)};
    runtime->InstallLayer(std::move(ticket), std::move(header),
                          std::move(image), std::move(done));
  }
  static void Abandon(ServerRuntime* runtime, const Ticket& ticket) {
    runtime->AbandonTransfer(ticket);
  }
};

// Thread safety: thread-safe.
// Lifetime:      `runtime` outlives it; it outlives the endpoint.
class LayerTransferService final : public v1::LayerTransfer::CallbackService {
 public:
  explicit LayerTransferService(ServerRuntime* runtime) : runtime_(runtime) {}

  grpc::ServerReadReactor<v1::TransferLayerRequest>* TransferLayer(
      grpc::CallbackServerContext* context,
      v1::TransferLayerResponse* response) override {
    return new UploadCall<TransferUpload>(runtime_, context, response);
  }

 private:
  ServerRuntime* const runtime_;
};

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_LAYER_TRANSFER_SERVICE_H_
