#include "server/push_factors_service.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/call_status_service.h"

namespace kronserve::server {

PushFactorsCall::PushFactorsCall(ServerRuntime* runtime,
                                 grpc::CallbackServerContext* context,
                                 v1::PushFactorsResponse* response)
    : runtime_(runtime), context_(context), response_(response) {
  StartRead(&request_);
}

void PushFactorsCall::OnReadDone(bool ok) {
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
  // The caller has sent everything, or is gone.
  if (context_->IsCancelled()) {
    End(absl::CancelledError("the caller is gone"));
  } else if (!ticket_.has_value()) {
    End(absl::InvalidArgumentError("the stream ended before its header"));
  } else if (const absl::Status status = CheckComplete(); !status.ok()) {
    // Not a refusal of the item: a broken connection looks the same, and a
    // repeat of the push must still be possible.
    End(status);
  } else {
    Stage();
  }
}

absl::Status PushFactorsCall::Take() {
  switch (request_.part_case()) {
    case v1::PushFactorsRequest::kHeader:
      return TakeHeader();
    case v1::PushFactorsRequest::kChunk:
      if (!assembler_.has_value()) {
        return absl::InvalidArgumentError("a chunk came before the header");
      }
      return assembler_->Add(request_.chunk());
    default:
      return absl::InvalidArgumentError(
          "a message has neither header nor chunk");
  }
}

absl::Status PushFactorsCall::TakeHeader() {
  if (ticket_.has_value()) {
    return absl::InvalidArgumentError("a second header came");
  }
  header_ = std::move(*request_.mutable_header());
  KRONSERVE_ASSIGN_OR_RETURN(ticket_, runtime_->BeginPush(header_));
  assembler_.emplace(ticket_->slots);
  return absl::OkStatus();
}

absl::Status PushFactorsCall::CheckComplete() const {
  for (int i = 0; i < header_.items_size(); ++i) {
    if (!ticket_->slots[i].keep) continue;
    const absl::Status status = assembler_->Complete(i);
    if (status.ok()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("item ", i, " of layer ", header_.items(i).layer(), ": ",
                     std::string(status.message())));
  }
  return absl::OkStatus();
}

void PushFactorsCall::Stage() {
  std::vector<ArrivedTensor> tensors;
  for (int i = 0; i < header_.items_size(); ++i) {
    tensors.push_back({assembler_->Take(i), header_.items(i).checksum(), {}});
  }
  PushTicket ticket = *std::move(ticket_);
  ticket_.reset();
  runtime_->StagePush(std::move(ticket), std::move(header_), std::move(tensors),
                      [this](absl::StatusOr<v1::PushFactorsResponse> response) {
                        if (response.ok()) *response_ = *std::move(response);
                        End(response.status());
                      });
}

void PushFactorsCall::End(const absl::Status& status) {
  Finish(ToCallStatus(status, context_));
}

void PushFactorsCall::OnDone() {
  {
    MutexLock lock(&mu_);
    if (ticket_.has_value()) runtime_->AbandonPush(*ticket_);
  }
  delete this;
}

}  // namespace kronserve::server
