#include "server/precondition_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/call_status_service.h"

namespace kronserve::server {

PreconditionCall::PreconditionCall(ServerRuntime* runtime,
                                   grpc::CallbackServerContext* context)
    : runtime_(runtime),
      context_(context),
      mailbox_(std::make_shared<Mailbox>()) {
  MutexLock lock(&mailbox_->mu);
  mailbox_->call = this;
  StartRead(&request_);
}

void PreconditionCall::OnReadDone(bool ok) {
  MutexLock reading(&reading_mu_);
  if (!ok) {
    EndOfInput();
    return;
  }
  if (const absl::Status status = Take(); !status.ok()) {
    Fail(status);
    return;
  }
  MutexLock lock(&mailbox_->mu);
  if (!finished_) StartRead(&request_);
}

absl::Status PreconditionCall::Take() {
  switch (request_.part_case()) {
    case v1::PreconditionRequest::kHeader:
      return TakeHeader();
    case v1::PreconditionRequest::kChunk:
      return TakeChunk();
    default:
      return absl::InvalidArgumentError(
          "a message has neither header nor chunk");
  }
}

absl::Status PreconditionCall::TakeHeader() {
  if (assembler_.has_value()) {
    return absl::InvalidArgumentError("a second header came");
  }
  header_ = std::move(*request_.mutable_header());
  {
    MutexLock lock(&mailbox_->mu);
    unanswered_ = header_.items_size();
  }
  KRONSERVE_ASSIGN_OR_RETURN(
      ticket_, runtime_->EndStep(header_, TimeLeft(*context_),
                                 [mailbox = mailbox_](Reply reply) {
                                   MutexLock lock(&mailbox->mu);
                                   if (mailbox->call == nullptr) return;
                                   mailbox->call->TakeReply(std::move(reply));
                                 }));
  assembler_.emplace(ticket_->slots);
  for (const ChunkAssembler::Slot& slot : ticket_->slots) {
    if (slot.elements == 0) ++complete_items_;
  }
  MutexLock lock(&mailbox_->mu);
  input_done_ = complete_items_ == header_.items_size();
  Pump();
  return absl::OkStatus();
}

absl::Status PreconditionCall::TakeChunk() {
  if (!assembler_.has_value()) {
    return absl::InvalidArgumentError("a chunk came before the header");
  }
  KRONSERVE_RETURN_IF_ERROR(assembler_->Add(request_.chunk()));
  const int item = request_.chunk().item();
  if (!assembler_->Complete(item).ok()) return absl::OkStatus();
  if (ticket_->slots[item].keep) {
    runtime_->AddGradient(
        ticket_->requests[item],
        {assembler_->Take(item), header_.items(item).checksum(), {}});
  }
  if (++complete_items_ == header_.items_size()) {
    MutexLock lock(&mailbox_->mu);
    input_done_ = true;
    Pump();
  }
  return absl::OkStatus();
}

// The caller has sent everything, or is gone.
void PreconditionCall::EndOfInput() {
  if (!assembler_.has_value()) {
    Fail(absl::InvalidArgumentError("the stream ended before its header"));
    return;
  }
  if (context_->IsCancelled()) {
    Fail(absl::CancelledError("the caller is gone"));
    return;
  }
  for (int i = 0; i < header_.items_size(); ++i) {
    const absl::Status status = assembler_->Complete(i);
    if (!ticket_->slots[i].keep || status.ok()) continue;
    runtime_->AddGradient(ticket_->requests[i], {nullptr, 0, status});
  }
  MutexLock lock(&mailbox_->mu);
  input_done_ = true;
  Pump();
}

void PreconditionCall::Fail(const absl::Status& status) {
  if (ticket_.has_value()) runtime_->Cancel(ticket_->requests);
  MutexLock lock(&mailbox_->mu);
  if (!failure_.has_value()) failure_ = status;
  Pump();
}

void PreconditionCall::TakeReply(Reply reply) {
  mailbox_->mu.AssertHeld();
  replies_.push_back(std::move(reply));
  Pump();
}

void PreconditionCall::Pump() {
  mailbox_->mu.AssertHeld();
  if (writing_ || finished_) return;
  if (failure_.has_value()) {
    finished_ = true;
    Finish(ToCallStatus(*failure_, context_));
    return;
  }
  response_.Clear();
  if (chunks_.has_value() && !chunks_->Next(response_.mutable_chunk())) {
    chunks_.reset();
    replies_.pop_front();
    --unanswered_;
    response_.Clear();
  }
  if (!chunks_.has_value()) {
    if (replies_.empty()) {
      if (unanswered_ > 0 || !input_done_) return;
      finished_ = true;
      Finish(grpc::Status::OK);
      return;
    }
    const Reply& reply = replies_.front();
    *response_.mutable_reply() = reply.reply;
    const bool has_value = reply.value != nullptr;
    chunks_.emplace(reply.reply.item(),
                    has_value ? reply.value->data() : nullptr,
                    has_value ? static_cast<int64_t>(reply.value->size()) : 0);
  }
  response_.set_epoch(replies_.front().epoch);
  writing_ = true;
  StartWrite(&response_);
}

void PreconditionCall::OnWriteDone(bool ok) {
  if (!ok) {
    OnCancel();
  }
  MutexLock lock(&mailbox_->mu);
  writing_ = false;
  Pump();
}

void PreconditionCall::OnCancel() {
  MutexLock lock(&mailbox_->mu);
  if (!failure_.has_value()) {
    failure_ = absl::CancelledError("the caller is gone");
  }
  Pump();
}

void PreconditionCall::OnDone() {
  {
    MutexLock lock(&mailbox_->mu);
    mailbox_->call = nullptr;
  }
  {
    MutexLock reading(&reading_mu_);
    if (ticket_.has_value()) runtime_->Cancel(ticket_->requests);
  }
  delete this;
}

}  // namespace kronserve::server
