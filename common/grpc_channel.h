// Client channels with the settings that every peer of ours expects.
//
// Layer: common. May include common/ only.

#ifndef KRONSERVE_COMMON_GRPC_CHANNEL_H_
#define KRONSERVE_COMMON_GRPC_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

namespace kronserve {

// A channel to `address` (host:port): no proxy from the environment,
// keepalive that our servers permit, reconnects after 0.1 to 1 s, no
// compression. Connects lazily; never blocks.
//
// Lifetime: the last reference may not die in a gRPC callback (grpc#37858);
//           keep channels in an object that outlives its calls.
std::shared_ptr<grpc::Channel> CreateChannel(const std::string& address);

}  // namespace kronserve

#endif  // KRONSERVE_COMMON_GRPC_CHANNEL_H_
