#include "common/grpc_server.h"

#include <arpa/inet.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <mutex>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace kronserve {
namespace {

bool IsLoopback(const std::string& host) {
  if (host == "localhost" || host == "[::1]") return true;
  // 127.0.0.0/8 as numbers: the name 127.example.com may be anywhere.
  in_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1 &&
         ntohl(address.s_addr) >> 24 == 127;
}

void EnablePlugins() {
  static std::once_flag once;
  std::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

// Splits host:port.
absl::Status CheckAddress(const EndpointOptions& options, std::string* host) {
  const size_t colon = options.listen.rfind(':');
  int port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(options.listen.substr(colon + 1), &port) || port < 0 ||
      port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen address '", options.listen, "' is not host:port"));
  }
  *host = options.listen.substr(0, colon);
  if (!options.insecure_bind && !IsLoopback(*host)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "listen address '", options.listen,
        "' is not a loopback address and "
        "there is no TLS: use 127.0.0.1, or give --insecure-bind if everyone "
        "who can reach it may use it"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Endpoint>> Endpoint::Start(
    const EndpointOptions& options,
    const std::vector<grpc::Service*>& services) {
  std::string host;
  if (absl::Status status = CheckAddress(options, &host); !status.ok()) {
    return status;
  }
  EnablePlugins();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(),
                           &port);
  // Two processes on one port would share its calls; the second must fail.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen on ", options.listen,
                     ": the port is in use or the address is not this "
                     "machine's; choose another with --listen"));
  }
  auto endpoint = std::unique_ptr<Endpoint>(new Endpoint);
  if (host == "0.0.0.0" || host == "[::]") host = "127.0.0.1";
  endpoint->address_ = absl::StrCat(host, ":", port);
  endpoint->server_ = std::move(server);
  return endpoint;
}

Endpoint::~Endpoint() { Shutdown(absl::ZeroDuration()); }

void Endpoint::SetServing(bool serving) {
  server_->GetHealthCheckService()->SetServingStatus(serving);
}

void Endpoint::Shutdown(absl::Duration grace) {
  server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
}

}  // namespace kronserve
