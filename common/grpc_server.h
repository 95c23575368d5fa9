// Starting and stopping a gRPC endpoint, the same way in every process.
//
// Layer: common. May include common/ only.

#ifndef KRONSERVE_COMMON_GRPC_SERVER_H_
#define KRONSERVE_COMMON_GRPC_SERVER_H_

#include <grpcpp/server.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace kronserve {

struct EndpointOptions {
  // host:port; port 0 binds any free one.
  std::string listen = "127.0.0.1:0";
  // Without TLS only loopback hosts are bound, unless this is set.
  bool insecure_bind = false;
};

// A running endpoint with the standard health service and reflection.
//
// Thread safety: thread-safe.
// Lifetime:      the services outlive it.
class Endpoint {
 public:
  // Binds and serves.
  //
  // Errors:
  //   kInvalidArgument     `listen` is not host:port, or its host is not a
  //                        loopback address and insecure_bind is not set.
  //   kFailedPrecondition  the address cannot be bound (in use, not ours); the
  //                        message names it.
  static absl::StatusOr<std::unique_ptr<Endpoint>> Start(
      const EndpointOptions& options,
      const std::vector<grpc::Service*>& services);

  ~Endpoint();

  // host:port that peers on this host can use.
  const std::string& address() const { return address_; }

  // What the health service answers for the whole process.
  void SetServing(bool serving);

  // Refuses new calls, lets running ones end, cancels what is left after
  // `grace`. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  Endpoint() = default;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace kronserve

#endif  // KRONSERVE_COMMON_GRPC_SERVER_H_
