// One PushFactors call.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.

#ifndef KRONSERVE_SERVER_PUSH_FACTORS_SERVICE_H_
#define KRONSERVE_SERVER_PUSH_FACTORS_SERVICE_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <optional>

#include "common/mutex.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "proto/tensor_chunks.h"
#include "server/server_runtime.h"

namespace kronserve::server {

// Reads the header and the chunks, hands the tensors to the runtime, answers
// when they are staged.
//
// Thread safety: gRPC's: reactions come one after another, the runtime's answer
//                on one of its threads when nothing is being read any more.
// Lifetime:      deletes itself in OnDone().
class PushFactorsCall final
    : public grpc::ServerReadReactor<v1::PushFactorsRequest> {
 public:
  // `runtime` outlives the call.
  PushFactorsCall(ServerRuntime* runtime, grpc::CallbackServerContext* context,
                  v1::PushFactorsResponse* response);

  void OnReadDone(bool ok) override;
  void OnDone() override;

 private:
  // Takes one message; an error ends the call.
  absl::Status Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status TakeHeader() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Every item that is to be kept has all its bytes.
  absl::Status CheckComplete() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Stage() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void End(const absl::Status& status);

  ServerRuntime* const runtime_;
  grpc::CallbackServerContext* const context_;
  v1::PushFactorsResponse* const response_;

  // Never waited for: gRPC orders the reactions of a call, though on different
  // threads; the lock shows that order to tools that cannot see into gRPC.
  mutable Mutex mu_;
  v1::PushFactorsRequest request_;
  v1::PushFactorsHeader header_ ABSL_GUARDED_BY(mu_);
  // From the header until it is staged.
  std::optional<PushTicket> ticket_ ABSL_GUARDED_BY(mu_);
  std::optional<ChunkAssembler> assembler_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_PUSH_FACTORS_SERVICE_H_
