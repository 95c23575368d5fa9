// Control calls over a real endpoint on loopback.

#include "server/server_control_service.h"

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/server_process.h"
#include "server/testing/service_fixture.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::SampleLayer;
using testing::CoreDriver;
using testing::kSmall;
using testing::MakeJob;
using testing::ServiceTest;
using testing::SyncOptions;

TEST_F(ServiceTest, ControlCallsMapTheirErrors) {
  auto job = MakeJob({kSmall}, 1, SyncOptions());
  Serve(job);
  auto spoiled = job;
  spoiled.mutable_config()->mutable_layers(0)->set_d_out(0);
  EXPECT_EQ(Configure(spoiled).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  auto huge = MakeJob({SampleLayer("huge", 1, 1 << 20)}, 1, SyncOptions());
  huge.mutable_config()->set_job("other");
  EXPECT_EQ(Configure(huge).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  v1::GetServerStatusResponse status = Status();
  EXPECT_EQ(status.name(), "s0");
  EXPECT_EQ(status.incarnation(), 70u);
  EXPECT_EQ(status.memory_limit_bytes(), int64_t{1} << 30);
  ASSERT_EQ(status.layers_size(), 1);
  EXPECT_EQ(status.layers(0).job(), "job");
  EXPECT_EQ(status.layers(0).layer(), "small");
  EXPECT_EQ(status.layers(0).closed_through(), -1);
  grpc::ClientContext context;
  v1::DropJobRequest drop;
  drop.set_term(1);
  drop.set_job("job");
  drop.set_world_version(1);
  v1::DropJobResponse response;
  EXPECT_TRUE(control_stub_->DropJob(&context, drop, &response).ok());
  EXPECT_EQ(Status().layers_size(), 0);
  EXPECT_EQ(Ask(CoreDriver::MakeEnd(0, 0), {}).status.error_code(),
            grpc::StatusCode::NOT_FOUND);
}

// Each layer that was looked for tells the link to the scheduler, whatever else
// of the process has ended by then.
TEST(ServerControlService, ProcessMayEndWhileItLooksForItsLayers) {
  ServerOptions options;
  options.name = "s0";
  options.device = "reference";
  options.cost_probe = "default";
  options.scheduler = "127.0.0.1:1";  // Nobody is there.
  options.checkpoint_dir = ::testing::TempDir() + "server_control_service_test";
  const std::vector<v1::LayerSpec> layers(300, kSmall);
  v1::ConfigureJobRequest job = MakeJob(layers, 1, SyncOptions());
  for (int i = 0; i < 300; ++i) {
    job.mutable_config()->mutable_layers(i)->set_name(absl::StrCat("fc", i));
  }
  for (int round = 0; round < 10; ++round) {
    auto server = ServerProcess::Start(options);
    ASSERT_THAT(server, IsOk());
    grpc::ClientContext context;
    v1::ConfigureJobResponse response;
    const grpc::Status status =
        v1::ServerControl::NewStub(CreateChannel((*server)->address()))
            ->ConfigureJob(&context, job, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  std::filesystem::remove_all(options.checkpoint_dir);
}

}  // namespace
}  // namespace kronserve::server
