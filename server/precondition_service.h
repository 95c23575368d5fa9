// One Precondition call.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.

#ifndef KRONSERVE_SERVER_PRECONDITION_SERVICE_H_
#define KRONSERVE_SERVER_PRECONDITION_SERVICE_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <optional>

#include "common/mutex.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "proto/tensor_chunks.h"
#include "server/server_runtime.h"

namespace kronserve::server {

// Reads a header and gradients, writes answers as they become ready.
//
// Thread safety: replies come from any thread; the members that they touch are
//                under one mutex, which outlives the call. One read and one
//                write are under way at a time.
// Lifetime:      deletes itself in OnDone(). A reply that comes later finds
//                the mailbox without a call and is dropped.
class PreconditionCall final
    : public grpc::ServerBidiReactor<v1::PreconditionRequest,
                                     v1::PreconditionResponse> {
 public:
  // `runtime` outlives the call.
  PreconditionCall(ServerRuntime* runtime,
                   grpc::CallbackServerContext* context);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  struct Mailbox {
    Mutex mu;
    PreconditionCall* call ABSL_GUARDED_BY(mu) = nullptr;
  };

  // Reading side.
  absl::Status Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(reading_mu_);
  absl::Status TakeHeader() ABSL_EXCLUSIVE_LOCKS_REQUIRED(reading_mu_);
  absl::Status TakeChunk() ABSL_EXCLUSIVE_LOCKS_REQUIRED(reading_mu_);
  void EndOfInput() ABSL_EXCLUSIVE_LOCKS_REQUIRED(reading_mu_);
  void Fail(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(reading_mu_);

  // Writing side.
  void TakeReply(Reply reply);
  // Starts the next write, or finishes when all is said.
  void Pump();

  ServerRuntime* const runtime_;
  grpc::CallbackServerContext* const context_;
  const std::shared_ptr<Mailbox> mailbox_;

  // Never waited for: gRPC orders the reactions of a call, though on different
  // threads; the lock shows that order to tools that cannot see into gRPC.
  // Taken before mailbox_->mu.
  Mutex reading_mu_;
  v1::PreconditionRequest request_;
  v1::PreconditionHeader header_ ABSL_GUARDED_BY(reading_mu_);
  std::optional<StepTicket> ticket_ ABSL_GUARDED_BY(reading_mu_);
  std::optional<ChunkAssembler> assembler_ ABSL_GUARDED_BY(reading_mu_);
  // Whose bytes all came.
  int complete_items_ ABSL_GUARDED_BY(reading_mu_) = 0;

  // Below: under mailbox_->mu.
  v1::PreconditionResponse response_;    // Being written.
  std::deque<Reply> replies_;            // The front one is being written.
  std::optional<ChunkSplitter> chunks_;  // Of the front one, after its reply.
  int unanswered_ = 0;
  bool input_done_ = false;
  bool writing_ = false;
  bool finished_ = false;
  std::optional<absl::Status> failure_;
};

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_PRECONDITION_SERVICE_H_
