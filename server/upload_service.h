// A call that uploads tensors: one header, their chunks, one answer.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.

#ifndef KRONSERVE_SERVER_UPLOAD_SERVICE_H_
#define KRONSERVE_SERVER_UPLOAD_SERVICE_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "proto/tensor_chunks.h"
#include "server/call_status_service.h"
#include "server/server_runtime.h"

namespace kronserve::server {

// Reads the header and the chunks, hands the tensors to the runtime, answers
// when it has done with them. What is uploaded is told by `Upload`:
//
//   Request, Header, Ticket, Response   the messages; a ticket has `slots`
//   StatusOr<Ticket> Begin(ServerRuntime*, const Header&)
//   std::string Name(const Header&, int slot)
//   void Complete(ServerRuntime*, Ticket, Header, std::vector<Tensor>, done)
//   void Abandon(ServerRuntime*, const Ticket&)
//
// A ticket ends in exactly one of the last two.
//
// Thread safety: gRPC's: reactions come one after another, the runtime's answer
//                on one of its threads when nothing is being read any more.
// Lifetime:      deletes itself in OnDone().
template <typename Upload>
class UploadCall final
    : public grpc::ServerReadReactor<typename Upload::Request> {
 public:
  using Request = typename Upload::Request;
  using Response = typename Upload::Response;

  // `runtime` outlives the call.
  UploadCall(ServerRuntime* runtime, grpc::CallbackServerContext* context,
             Response* response)
      : runtime_(runtime), context_(context), response_(response) {
    this->StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    MutexLock lock(&mu_);
    const absl::Status status = ok ? Take() : CheckEnd();
    if (!status.ok()) {
      End(status);
    } else if (ok) {
      this->StartRead(&request_);
    } else {
      Complete();
    }
  }

  void OnDone() override {
    {
      MutexLock lock(&mu_);
      if (ticket_.has_value()) Upload::Abandon(runtime_, *ticket_);
    }
    delete this;
  }

 private:
  // Takes one message; an error ends the call.
  absl::Status Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    switch (request_.part_case()) {
      case Request::kHeader:
        return TakeHeader();
      case Request::kChunk:
        if (!assembler_.has_value()) {
          return absl::InvalidArgumentError("a chunk came before the header");
        }
        return assembler_->Add(request_.chunk());
      default:
        return absl::InvalidArgumentError(
            "a message has neither header nor chunk");
    }
  }

  absl::Status TakeHeader() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (ticket_.has_value()) {
      return absl::InvalidArgumentError("a second header came");
    }
    header_ = std::move(*request_.mutable_header());
    KRONSERVE_ASSIGN_OR_RETURN(ticket_, Upload::Begin(runtime_, header_));
    assembler_.emplace(ticket_->slots);
    return absl::OkStatus();
  }

  // The caller has sent everything, or is gone. Bytes that are missing are no
  // fault of their item: a broken connection looks the same, and a repeat of
  // the call must still be possible.
  absl::Status CheckEnd() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (context_->IsCancelled()) {
      return absl::CancelledError("the caller is gone");
    }
    if (!ticket_.has_value()) {
      return absl::InvalidArgumentError("the stream ended before its header");
    }
    for (int i = 0; i < num_slots(); ++i) {
      if (!ticket_->slots[i].keep) continue;
      const absl::Status status = assembler_->Complete(i);
      if (status.ok()) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          Upload::Name(header_, i), ": ", std::string(status.message())));
    }
    return absl::OkStatus();
  }

  void Complete() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::vector<Tensor> tensors;
    for (int i = 0; i < num_slots(); ++i) {
      tensors.push_back(assembler_->Take(i));
    }
    typename Upload::Ticket ticket = *std::move(ticket_);
    ticket_.reset();
    Upload::Complete(runtime_, std::move(ticket), std::move(header_),
                     std::move(tensors),
                     [this](absl::StatusOr<Response> response) {
                       if (response.ok()) response_->Swap(&*response);
                       End(response.status());
                     });
  }

  void End(const absl::Status& status) {
    this->Finish(ToCallStatus(status, context_));
  }

  int num_slots() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return static_cast<int>(ticket_->slots.size());
  }

  ServerRuntime* const runtime_;
  grpc::CallbackServerContext* const context_;
  Response* const response_;

  // Never waited for: gRPC orders the reactions of a call, though on different
  // threads; the lock shows that order to tools that cannot see into gRPC.
  mutable Mutex mu_;
  Request request_;
  typename Upload::Header header_ ABSL_GUARDED_BY(mu_);
  // From the header until it is completed.
  std::optional<typename Upload::Ticket> ticket_ ABSL_GUARDED_BY(mu_);
  std::optional<ChunkAssembler> assembler_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_UPLOAD_SERVICE_H_
