#include "server/layer_transfer_service.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/call_status_service.h"

namespace kronserve::server {

TransferLayerCall::TransferLayerCall(ServerRuntime* runtime,
                                     grpc::CallbackServerContext* context,
                                     v1::TransferLayerResponse* response)
    : runtime_(runtime), context_(context), response_(response) {
  StartRead(&request_);
}

void TransferLayerCall::OnReadDone(bool ok) {
  MutexLock lock(&mu_);
  if (ok) {
    const absl::Status status = Take();
    if (!status.ok()) {
      End(status);
    } else {
      StartRead(&request_);
    }
    return;
  }
  // The sender has sent everything, or is gone.
  if (context_->IsCancelled()) {
    End(absl::CancelledError("the sender is gone"));
  } else if (!ticket_.has_value()) {
    End(absl::InvalidArgumentError("the stream ended before its header"));
  } else if (const absl::Status status = CheckComplete(); !status.ok()) {
    End(status);
  } else {
    Install();
  }
}

absl::Status TransferLayerCall::Take() {
  switch (request_.part_case()) {
    case v1::TransferLayerRequest::kHeader:
      return TakeHeader();
    case v1::TransferLayerRequest::kChunk:
      if (!assembler_.has_value()) {
        return absl::InvalidArgumentError("a chunk came before the header");
      }
      return assembler_->Add(request_.chunk());
    default:
      return absl::InvalidArgumentError(
          "a message has neither header nor chunk");
  }
}

absl::Status TransferLayerCall::TakeHeader() {
  if (ticket_.has_value()) {
    return absl::InvalidArgumentError("a second header came");
  }
  header_ = std::move(*request_.mutable_header());
  KRONSERVE_ASSIGN_OR_RETURN(ticket_, runtime_->BeginTransfer(header_));
  assembler_.emplace(ticket_->slots);
  return absl::OkStatus();
}

absl::Status TransferLayerCall::CheckComplete() const {
  for (size_t i = 0; i < ticket_->slots.size(); ++i) {
    if (!ticket_->slots[i].keep) continue;
    const absl::Status status = assembler_->Complete(static_cast<int>(i));
    if (status.ok()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", i, " of layer '", header_.snapshot().layer().name(),
        "': ", std::string(status.message())));
  }
  return absl::OkStatus();
}

void TransferLayerCall::Install() {
  LayerImage image{header_.snapshot(), {}};
  for (size_t i = 0; i < ticket_->slots.size(); ++i) {
    image.tensors.push_back(assembler_->Take(static_cast<int>(i)));
  }
  TransferTicket ticket = *std::move(ticket_);
  ticket_.reset();
  runtime_->InstallLayer(
      std::move(ticket), std::move(header_), std::move(image),
      [this](absl::StatusOr<v1::TransferLayerResponse> response) {
        if (response.ok()) *response_ = *std::move(response);
        End(response.status());
      });
}

void TransferLayerCall::End(const absl::Status& status) {
  Finish(ToCallStatus(status, context_));
}

void TransferLayerCall::OnDone() {
  {
    MutexLock lock(&mu_);
    if (ticket_.has_value()) runtime_->AbandonTransfer(*ticket_);
  }
  delete this;
}

}  // namespace kronserve::server
