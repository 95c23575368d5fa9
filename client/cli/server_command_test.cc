#include "client/cli/server_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/grpc_server.h"
#include "common/testing/status_matchers.h"
#include "kronserve/v1/preconditioner.grpc.pb.h"

namespace kronserve::client {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

v1::GetServerStatusResponse TwoLayers() {
  v1::GetServerStatusResponse status;
  status.set_name("a");
  status.set_incarnation(uint64_t{1} << 63);
  status.mutable_counters()->set_contributions_merged(12);
  v1::LayerStatus* layer = status.add_layers();
  layer->set_job("digits");
  layer->set_layer("fc1");
  layer->set_phase(v1::LAYER_PHASE_AWAITED);
  layer->set_updates(7);
  layer->set_closed_through(60);
  return status;
}

// Answers with what it is given, or refuses.
class FakeServer final : public v1::ServerControl::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetServerStatus(
      grpc::CallbackServerContext* context, const v1::GetServerStatusRequest*,
      v1::GetServerStatusResponse* response) override {
    *response = TwoLayers();
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(refusal);
    return reactor;
  }
  grpc::Status refusal;
};

TEST(FetchServerStatusTest, ReturnsWhatTheServerSays) {
  FakeServer server;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto endpoint,
                                 Endpoint::Start({}, {&server}));
  ServerCommandOptions options;
  options.address = endpoint->address();
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto status, FetchServerStatus(options));
  EXPECT_EQ(status.counters().contributions_merged(), 12);
  server.refusal =
      grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "not for you");
  EXPECT_THAT(
      FetchServerStatus(options),
      StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("not for you")));
}

TEST(FetchServerStatusTest, AServerThatIsNotThereIsNamed) {
  ServerCommandOptions options;
  {
    FakeServer server;
    KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto endpoint,
                                   Endpoint::Start({}, {&server}));
    options.address = endpoint->address();  // Free again below.
  }
  EXPECT_THAT(FetchServerStatus(options),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("server at " + options.address +
                                       " cannot be reached"),
                             Not(HasSubstr("\n")))));
}

TEST(RenderServerTest, TextShowsLayersAndCountersThatCounted) {
  const std::string text = RenderServerText(TwoLayers(), /*colors=*/false);
  EXPECT_THAT(text, AllOf(HasSubstr("fc1"), HasSubstr("awaited"),
                          HasSubstr("contributions merged"), HasSubstr("12"),
                          Not(HasSubstr("contributions late"))));
  EXPECT_THAT(RenderServerText({}, /*colors=*/false),
              HasSubstr("holds no layer"));
}

TEST(RenderServerTest, JsonHoldsEveryCounter) {
  const auto object = nlohmann::json::parse(RenderServerJson(TwoLayers()));
  EXPECT_EQ(object["incarnation"], "9223372036854775808");
  EXPECT_EQ(object["counters"]["contributions_merged"], 12);
  EXPECT_EQ(object["counters"]["contributions_late"], 0);
  EXPECT_EQ(object["layers"][0]["phase"], "awaited");
  EXPECT_EQ(object["layers"][0]["closed_through"], 60);
}

TEST(ServerCommandOptionsTest, TakesEveryWord) {
  ServerCommandOptions options;
  OptionSet set("kronctl server", "test");
  AddServerCommandOptions(&set, &options);
  EXPECT_THAT(set.Parse({"--address=h:1", "--json", "--timeout=1s"}), IsOk());
  EXPECT_EQ(options.address, "h:1");
  EXPECT_TRUE(options.json);
  EXPECT_EQ(options.timeout, absl::Seconds(1));
}

}  // namespace
}  // namespace kronserve::client
