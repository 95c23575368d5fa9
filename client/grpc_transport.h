// The data path over gRPC.
//
// Layer: client. May include proto/ and common/.

#ifndef KRONSERVE_CLIENT_GRPC_TRANSPORT_H_
#define KRONSERVE_CLIENT_GRPC_TRANSPORT_H_

#include <memory>

#include "client/transport.h"

namespace kronserve::client {

// Metadata of an ABORTED call that holds a serialised v1::Assignment.
inline constexpr char kAssignmentMetadata[] = "kronserve-assignment-bin";
// And v1::LayersElsewhere.
inline constexpr char kElsewhereMetadata[] = "kronserve-elsewhere-bin";

// One call per push and per end of a step, over one channel per address that
// lives as long as the transport. Tensors go and come in 1 MiB chunks; a rank
// never holds more of a call than its tensors and one chunk each way.
std::unique_ptr<Transport> CreateGrpcTransport();

}  // namespace kronserve::client

#endif  // KRONSERVE_CLIENT_GRPC_TRANSPORT_H_
