// Layers between real servers, over gRPC and through checkpoint files.

#include "server/layer_transfer_service.h"

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/snapshot_check.h"
#include "common/grpc_channel.h"
#include "common/testing/status_matchers.h"
#include "server/server_process.h"
#include "server/testing/test_job.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::SampleLayer;
using testing::MakeCall;
using testing::MakeFactors;
using testing::MakeJob;
using testing::MakePushHeader;
using testing::MakeTensor;
using testing::Piece;
using testing::Place;
using testing::SyncOptions;

const v1::LayerSpec kLayer = SampleLayer("fc1", 1, 2);

// A server process and the calls of a test to it.
class Server {
 public:
  Server(const std::string& name, const std::string& checkpoint_dir) {
    ServerOptions options;
    options.name = name;
    options.device = "reference";
    options.cost_probe = "default";
    options.checkpoint_dir = checkpoint_dir;
    auto process = ServerProcess::Start(options);
    EXPECT_THAT(process, IsOk());
    process_ = *std::move(process);
    channel_ = CreateChannel(process_->address());
  }

  ServerProcess& process() { return *process_; }

  grpc::Status Configure(const v1::ConfigureJobRequest& request) {
    grpc::ClientContext context;
    v1::ConfigureJobResponse response;
    return v1::ServerControl::NewStub(channel_)->ConfigureJob(&context, request,
                                                              &response);
  }

  v1::ContributionOutcome Push(int64_t step, float a) {
    const std::vector<Piece> pieces = MakeFactors(0, kLayer, a, 1, 4);
    grpc::ClientContext context;
    v1::PushFactorsResponse response;
    auto stub = v1::Preconditioner::NewStub(channel_);
    auto writer = stub->PushFactors(&context, &response);
    v1::PushFactorsRequest request;
    *request.mutable_header() = MakePushHeader(0, step, pieces);
    writer->Write(request);
    for (int i = 0; i < 2; ++i) {
      const Tensor& tensor = pieces[i].tensor;
      ChunkSplitter splitter(i, tensor->data(),
                             static_cast<int64_t>(tensor->size()));
      while (splitter.Next(request.mutable_chunk())) writer->Write(request);
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return status.ok() ? response.results(0).outcome()
                       : v1::CONTRIBUTION_OUTCOME_UNSPECIFIED;
  }

  // Ends `step` and asks for V of layer 0.
  v1::LayerReply Ask(int64_t step) {
    const Tensor gradient = MakeTensor({12, -24});
    grpc::ClientContext context;
    auto stub = v1::Preconditioner::NewStub(channel_);
    auto stream = stub->Precondition(&context);
    v1::PreconditionRequest request;
    *request.mutable_header()->mutable_call() = MakeCall(0, step);
    request.mutable_header()->set_end(v1::STEP_END_COMMIT);
    v1::GradientItem* item = request.mutable_header()->add_items();
    item->set_rows(1);
    item->set_cols(2);
    item->set_checksum(testing::ChecksumOf(gradient));
    stream->Write(request);
    ChunkSplitter splitter(0, gradient->data(), 2);
    while (splitter.Next(request.mutable_chunk())) stream->Write(request);
    stream->WritesDone();
    v1::PreconditionResponse response;
    v1::LayerReply reply;
    while (stream->Read(&response)) {
      if (response.has_reply()) reply = response.reply();
    }
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply;
  }

  // Sends the messages of one TransferLayer call.
  grpc::Status Transfer(const std::vector<v1::TransferLayerRequest>& messages) {
    grpc::ClientContext context;
    v1::TransferLayerResponse response;
    auto stub = v1::LayerTransfer::NewStub(channel_);
    auto writer = stub->TransferLayer(&context, &response);
    for (const auto& message : messages) writer->Write(message);
    writer->WritesDone();
    return writer->Finish();
  }

  // Waits up to ten seconds for its status.
  bool Await(
      const std::function<bool(const v1::GetServerStatusResponse&)>& is_so) {
    const absl::Time end = absl::Now() + absl::Seconds(10);
    while (!is_so(process_->Status())) {
      if (absl::Now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }

 private:
  std::unique_ptr<ServerProcess> process_;
  std::shared_ptr<grpc::Channel> channel_;
};

class LayerTransferTest : public ::testing::Test {
 protected:
  LayerTransferTest() {
    std::filesystem::remove_all(directory_);
    s0_ = std::make_unique<Server>("s0", directory_);
    s1_ = std::make_unique<Server>("s1", directory_);
    config_ = MakeJob({kLayer}, 1, SyncOptions());
  }
  ~LayerTransferTest() override {
    s0_.reset();
    s1_.reset();
    std::filesystem::remove_all(directory_);
  }

  // Layer 0 is on s1 from `from_step` on.
  void PlaceOnS1(int64_t from_step, const std::string& source) {
    Place(&config_, 0, "s1", from_step, source);
    v1::Assignment* assignment = config_.mutable_config()->mutable_assignment();
    for (Server* server : {s0_.get(), s1_.get()}) {
      v1::ServerAddress* entry =
          assignment->mutable_servers(server == s0_.get() ? 0 : 1);
      entry->set_address(server->process().address());
      entry->set_incarnation(server->process().incarnation());
    }
    EXPECT_TRUE(s0_->Configure(config_).ok());
    EXPECT_TRUE(s1_->Configure(config_).ok());
  }

  const std::string directory_ =
      ::testing::TempDir() + "layer_transfer_service_test";
  std::unique_ptr<Server> s0_;
  std::unique_ptr<Server> s1_;
  v1::ConfigureJobRequest config_;
};

TEST_F(LayerTransferTest, LayerMovesAndTrainingGoesOn) {
  ASSERT_TRUE(s0_->Configure(config_).ok());
  EXPECT_EQ(s0_->Push(0, 2), v1::CONTRIBUTION_OUTCOME_ACCEPTED);
  EXPECT_EQ(s0_->Ask(0).version(), 1);
  PlaceOnS1(1, "s0");
  ASSERT_TRUE(s1_->Await([](const v1::GetServerStatusResponse& status) {
    return status.counters().layers_received() == 1;
  }));
  ASSERT_TRUE(s0_->Await([](const v1::GetServerStatusResponse& status) {
    return status.layers_size() == 0;
  }));
  // The answer of a push was lost: its repeat is averaged once.
  EXPECT_EQ(s1_->Push(0, 2), v1::CONTRIBUTION_OUTCOME_DUPLICATE);
  EXPECT_EQ(s1_->Push(1, 6), v1::CONTRIBUTION_OUTCOME_ACCEPTED);
  const v1::LayerReply reply = s1_->Ask(1);
  EXPECT_EQ(reply.outcome(), v1::LAYER_OUTCOME_PRECONDITIONED);
  EXPECT_EQ(reply.version(), 2);
  // A = 4 I, G = 1: <V, D> = (12^2 + 24^2) / 4.
  EXPECT_NEAR(reply.inner_product(), 180, 1e-3);
}

TEST_F(LayerTransferTest, NewOwnerIsTriedUntilItKnowsOfTheMove) {
  ASSERT_TRUE(s0_->Configure(config_).ok());
  EXPECT_EQ(s0_->Push(0, 2), v1::CONTRIBUTION_OUTCOME_ACCEPTED);
  EXPECT_EQ(s0_->Ask(0).version(), 1);
  Place(&config_, 0, "s1", 1, "s0");
  v1::ServerAddress* receiver =
      config_.mutable_config()->mutable_assignment()->mutable_servers(1);
  receiver->set_address(s1_->process().address());
  config_.mutable_config()
      ->mutable_assignment()
      ->mutable_servers(0)
      ->set_incarnation(s0_->process().incarnation());
  ASSERT_TRUE(s0_->Configure(config_).ok());
  // A call of the old owner's, refused as of an unknown job, changes nothing.
  ASSERT_TRUE(s0_->Await([](const v1::GetServerStatusResponse& status) {
    return status.layers(0).phase() == v1::LAYER_PHASE_LEAVING;
  }));
  ASSERT_TRUE(s1_->Configure(config_).ok());
  EXPECT_TRUE(s1_->Await([](const v1::GetServerStatusResponse& status) {
    return status.counters().layers_received() == 1;
  }));
}

TEST_F(LayerTransferTest, LayerOfADeadServerComesFromItsCheckpoint) {
  ASSERT_TRUE(s0_->Configure(config_).ok());
  EXPECT_EQ(s0_->Push(0, 2), v1::CONTRIBUTION_OUTCOME_ACCEPTED);
  EXPECT_EQ(s0_->Ask(0).version(), 1);
  ASSERT_TRUE(s0_->Await([](const v1::GetServerStatusResponse& status) {
    return status.counters().checkpoints_written() >= 1;
  }));
  s0_->process().Kill();
  Place(&config_, 0, "s1", 2);
  ASSERT_TRUE(s1_->Configure(config_).ok());
  ASSERT_TRUE(s1_->Await([](const v1::GetServerStatusResponse& status) {
    return status.counters().layers_restored() == 1;
  }));
  EXPECT_EQ(s1_->process().Status().layers(0).updates(), 1);
  EXPECT_EQ(s1_->Push(2, 6), v1::CONTRIBUTION_OUTCOME_ACCEPTED);
  EXPECT_EQ(s1_->Ask(2).version(), 2);
}

TEST_F(LayerTransferTest, StoppingServerSavesWhatIsLeft) {
  ASSERT_TRUE(s0_->Configure(config_).ok());
  EXPECT_EQ(s0_->Push(0, 2), v1::CONTRIBUTION_OUTCOME_ACCEPTED);
  EXPECT_EQ(s0_->Ask(0).version(), 1);
  EXPECT_EQ(s0_->Push(1, 2), v1::CONTRIBUTION_OUTCOME_ACCEPTED);
  EXPECT_EQ(s0_->Ask(1).version(), 2);
  s0_->process().BeginDrain();
  EXPECT_FALSE(s0_->process().IsDrained());  // There is no scheduler to ask.
  s0_->process().SaveLayers();
  s0_->process().Shutdown(absl::Seconds(1));
  Place(&config_, 0, "s1", 2);
  ASSERT_TRUE(s1_->Configure(config_).ok());
  ASSERT_TRUE(s1_->Await([](const v1::GetServerStatusResponse& status) {
    return status.counters().layers_restored() == 1;
  }));
  EXPECT_EQ(s1_->process().Status().layers(0).updates(), 2);
  EXPECT_TRUE(s1_->Await([](const v1::GetServerStatusResponse& status) {
    return status.layers(0).phase() == v1::LAYER_PHASE_OWNED;
  }));
}

TEST_F(LayerTransferTest, ServerWithoutLayersIsDrainedAtOnce) {
  s0_->process().BeginDrain();
  EXPECT_TRUE(s0_->process().IsDrained());
}

TEST_F(LayerTransferTest, BrokenStreamsAreRefused) {
  v1::TransferLayerRequest header;
  header.mutable_header();
  v1::TransferLayerRequest chunk;
  chunk.mutable_chunk()->set_data("1234");
  const v1::TransferLayerRequest nothing;
  constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
  EXPECT_EQ(s0_->Transfer({}).error_code(), kInvalid);
  EXPECT_EQ(s0_->Transfer({chunk}).error_code(), kInvalid);
  EXPECT_EQ(s0_->Transfer({nothing}).error_code(), kInvalid);
  EXPECT_EQ(s0_->Transfer({header}).error_code(), kInvalid);  // It is empty.
}

TEST_F(LayerTransferTest, IncompleteTransferIsRefusedAndFreesItsMemory) {
  ASSERT_TRUE(s0_->Configure(config_).ok());
  PlaceOnS1(5, "s0");
  v1::TransferLayerRequest request;
  v1::TransferLayerHeader* header = request.mutable_header();
  header->set_job("job");
  header->set_world_version(1);
  header->set_epoch(2);
  header->set_source("s0");
  header->set_incarnation(s0_->process().incarnation());
  v1::LayerSnapshot* snapshot = header->mutable_snapshot();
  snapshot->set_job("job");
  *snapshot->mutable_layer() = kLayer;
  *snapshot->mutable_options() = checkpoint::StateOptions(SyncOptions());
  snapshot->set_closed_through(4);
  snapshot->set_updates(1);
  for (const auto& [role, elements] :
       std::vector<std::pair<v1::SnapshotTensorRole, int64_t>>{
           {v1::SNAPSHOT_TENSOR_ROLE_AVERAGE_A, 3},
           {v1::SNAPSHOT_TENSOR_ROLE_AVERAGE_G, 1}}) {
    snapshot->add_tensors()->set_role(role);
    snapshot->mutable_tensors(snapshot->tensors_size() - 1)
        ->set_elements(elements);
  }
  const grpc::Status status = s1_->Transfer({request});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), ::testing::HasSubstr("'fc1'"));
  EXPECT_TRUE(s1_->Await([](const v1::GetServerStatusResponse& now) {
    return now.staged_bytes() == 0;
  }));
}

}  // namespace
}  // namespace kronserve::server
