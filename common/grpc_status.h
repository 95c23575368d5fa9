// Between absl::Status and grpc::Status, in one place.
//
// Layer: common. May include common/ only.

#ifndef KRONSERVE_COMMON_GRPC_STATUS_H_
#define KRONSERVE_COMMON_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace kronserve {

// The same code and message.
grpc::Status ToGrpcStatus(const absl::Status& status);

// The same code; the message is preceded by `context` ("server 'a' at
// 127.0.0.1:7001"), which tells the reader whom to look at. gRPC's UNKNOWN
// "Stream removed" becomes kUnavailable: the connection broke.
absl::Status FromGrpcStatus(const grpc::Status& status,
                            const std::string& context);

}  // namespace kronserve

#endif  // KRONSERVE_COMMON_GRPC_STATUS_H_
