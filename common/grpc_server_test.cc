// The endpoint as a client sees it: the tests speak to its health service.

#include "common/grpc_server.h"

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <future>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/grpc_channel.h"
#include "common/grpc_status.h"
#include "common/testing/status_matchers.h"

namespace kronserve {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::StatusOr<std::unique_ptr<Endpoint>> StartAt(const std::string& listen,
                                                  bool insecure_bind = false) {
  return Endpoint::Start({listen, insecure_bind}, {});
}

// The bytes of the reply of grpc.health.v1.Health/Check for the whole process;
// field 1 (tag 0x08) is the state: 1 serving, 2 not serving.
absl::StatusOr<std::string> CheckHealth(
    const std::shared_ptr<grpc::Channel>& channel,
    std::chrono::milliseconds timeout) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  grpc::ByteBuffer request, response;
  grpc::Slice empty;
  request = grpc::ByteBuffer(&empty, 1);
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::StubOptions(),
                 &request, &response, [&done](const grpc::Status& status) {
                   done.set_value(status);
                 });
  const grpc::Status status = done.get_future().get();
  if (!status.ok()) return FromGrpcStatus(status, "health");
  grpc::Slice slice;
  if (!response.DumpToSingleSlice(&slice).ok()) {
    return absl::InternalError("no bytes");
  }
  return std::string(reinterpret_cast<const char*>(slice.begin()),
                     slice.size());
}

std::string Health(const std::string& address) {
  const auto reply =
      CheckHealth(CreateChannel(address), std::chrono::seconds(30));
  if (!reply.ok()) return reply.status().ToString();
  if (*reply == "\x08\x01") return "serving";
  if (*reply == "\x08\x02") return "not serving";
  return absl::StrCat("unexpected reply of ", reply->size(), " bytes");
}

TEST(Endpoint, BindsAFreePortAndServesHealth) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto endpoint, StartAt("127.0.0.1:0"));
  EXPECT_THAT(endpoint->address(), StartsWith("127.0.0.1:"));
  EXPECT_FALSE(absl::EndsWith(endpoint->address(), ":0"));
  EXPECT_EQ(Health(endpoint->address()), "serving");
}

TEST(Endpoint, HealthFollowsSetServing) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto endpoint, StartAt("localhost:0"));
  endpoint->SetServing(false);
  EXPECT_EQ(Health(endpoint->address()), "not serving");
  endpoint->SetServing(true);
  EXPECT_EQ(Health(endpoint->address()), "serving");
}

TEST(Endpoint, PortInUseIsNamed) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto first, StartAt("127.0.0.1:0"));
  EXPECT_THAT(StartAt(first->address()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(first->address()), HasSubstr("in use"),
                             HasSubstr("--listen"))));
}

TEST(Endpoint, AddressOfAnotherMachineIsNamed) {
  // 192.0.2.0/24 is reserved for documentation (RFC 5737).
  EXPECT_THAT(StartAt("192.0.2.1:0", /*insecure_bind=*/true),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("192.0.2.1:0")));
}

TEST(Endpoint, RefusesWhatIsNotHostAndPort) {
  for (const char* listen :
       {"", "127.0.0.1", ":7000", "127.0.0.1:", "127.0.0.1:http",
        "127.0.0.1:-1", "127.0.0.1:65536", "::1:7000"}) {
    EXPECT_THAT(StartAt(listen),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat("'", listen, "'"))));
  }
}

TEST(Endpoint, OtherThanLoopbackNeedsAnExplicitWord) {
  for (const char* listen :
       {"0.0.0.0:0", "[::]:0", "192.0.2.1:0", "127.example.com:0",
        "127.0.0.1.example.com:0", "example.com:0"}) {
    EXPECT_THAT(StartAt(listen),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("not a loopback address"),
                               HasSubstr("--insecure-bind"))));
  }
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto endpoint,
                                 StartAt("0.0.0.0:0", /*insecure_bind=*/true));
  EXPECT_THAT(endpoint->address(), StartsWith("127.0.0.1:"));
  EXPECT_EQ(Health(endpoint->address()), "serving");
}

TEST(Endpoint, ShutdownIsIdempotentAndFreesThePort) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto endpoint, StartAt("127.0.0.1:0"));
  const std::string address = endpoint->address();
  endpoint->Shutdown(absl::Seconds(1));
  endpoint->Shutdown(absl::ZeroDuration());
  EXPECT_THAT(StartAt(address), IsOk());
}

TEST(Channel, IgnoresTheProxyOfTheEnvironment) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto endpoint, StartAt("127.0.0.1:0"));
  setenv("http_proxy", "http://127.0.0.1:9", 1);
  const std::string health = Health(endpoint->address());
  unsetenv("http_proxy");
  EXPECT_EQ(health, "serving");
}

TEST(Channel, RefusedConnectionIsUnavailable) {
  std::string address;
  {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(auto endpoint, StartAt("127.0.0.1:0"));
    address = endpoint->address();
  }
  EXPECT_THAT(CheckHealth(CreateChannel(address), std::chrono::seconds(30)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("health")));
}

TEST(Channel, FindsAPeerThatComesBack) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto endpoint, StartAt("127.0.0.1:0"));
  const std::string address = endpoint->address();
  const auto channel = CreateChannel(address);
  ASSERT_THAT(CheckHealth(channel, std::chrono::seconds(30)), IsOk());
  endpoint.reset();
  EXPECT_THAT(CheckHealth(channel, std::chrono::seconds(30)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("health")));
  KRONSERVE_ASSERT_OK_AND_ASSIGN(endpoint, StartAt(address));
  // The channel redials by itself, at most a second after the last try.
  channel->WaitForConnected(std::chrono::system_clock::now() +
                            std::chrono::seconds(30));
  EXPECT_THAT(CheckHealth(channel, std::chrono::seconds(30)), IsOk());
}

}  // namespace
}  // namespace kronserve
