// The data path over a real endpoint on loopback.

#include "server/preconditioner_service.h"

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/grpc_channel.h"
#include "common/grpc_server.h"
#include "common/testing/status_matchers.h"
#include "server/server_control_service.h"
#include "server/testing/core_driver.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::IsOk;
using ::testing::AllOf;
using testing::ChecksumOf;
using testing::CoreDriver;
using testing::DefaultCoreOptions;
using ::testing::HasSubstr;
using testing::IncarnationOf;
using testing::MakeCall;
using testing::MakeFactors;
using testing::MakeJob;
using testing::MakeLayer;
using testing::MakePushHeader;
using testing::MakeTensor;
using testing::PackedIdentity;
using testing::Piece;
using testing::SyncOptions;

const v1::LayerSpec kSmall = MakeLayer("small", 1, 2);
const Tensor kGradient = MakeTensor({12, -24});

// What a Precondition call brought.
struct Answers {
  grpc::Status status;
  std::map<int, v1::LayerReply> replies;  // By item.
  std::map<int, std::vector<float>> values;
};

class ServiceTest : public ::testing::Test {
 protected:
  void Serve(const v1::ConfigureJobRequest& job,
             int64_t staging_limit = int64_t{64} << 20) {
    RuntimeOptions options;
    options.core = DefaultCoreOptions();
    options.core.staging_limit_bytes = staging_limit;
    options.clock = &SteadyClock();
    auto runtime = ServerRuntime::Create(options);
    ASSERT_THAT(runtime, IsOk());
    runtime_ = *std::move(runtime);
    service_ = std::make_unique<PreconditionerService>(runtime_.get());
    control_ = std::make_unique<ServerControlService>(runtime_.get());
    auto endpoint = Endpoint::Start({}, {service_.get(), control_.get()});
    ASSERT_THAT(endpoint, IsOk());
    endpoint_ = *std::move(endpoint);
    channel_ = CreateChannel(endpoint_->address());
    stub_ = v1::Preconditioner::NewStub(channel_);
    control_stub_ = v1::ServerControl::NewStub(channel_);
    ASSERT_TRUE(Configure(job).ok());
  }

  static void SetDeadline(grpc::ClientContext* context,
                          std::chrono::milliseconds timeout) {
    context->set_deadline(std::chrono::system_clock::now() + timeout);
  }

  grpc::Status Configure(const v1::ConfigureJobRequest& job) {
    grpc::ClientContext context;
    SetDeadline(&context, std::chrono::seconds(10));
    v1::ConfigureJobResponse response;
    return control_stub_->ConfigureJob(&context, job, &response);
  }

  v1::GetServerStatusResponse Status() {
    grpc::ClientContext context;
    SetDeadline(&context, std::chrono::seconds(10));
    v1::GetServerStatusResponse response;
    EXPECT_TRUE(control_stub_->GetServerStatus(&context, {}, &response).ok());
    return response;
  }

  // Waits until nothing is staged: the end of a call reaches the server after
  // its caller.
  bool StagingBecomesEmpty() {
    const absl::Time end = SteadyClock().Now() + absl::Seconds(10);
    while (SteadyClock().Now() < end) {
      if (Status().staged_bytes() == 0) return true;
    }
    return false;
  }

  grpc::Status PushMessages(const std::vector<v1::PushFactorsRequest>& messages,
                            v1::PushFactorsResponse* response) {
    grpc::ClientContext context;
    SetDeadline(&context, std::chrono::seconds(10));
    auto writer = stub_->PushFactors(&context, response);
    for (const auto& message : messages) {
      if (!writer->Write(message)) break;
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    trailers_.clear();
    for (const auto& [key, value] : context.GetServerTrailingMetadata()) {
      trailers_.emplace(std::string(key.data(), key.size()),
                        std::string(value.data(), value.size()));
    }
    return status;
  }

  static std::vector<v1::PushFactorsRequest> MakeMessages(
      const v1::PushFactorsHeader& header, const std::vector<Piece>& pieces) {
    std::vector<v1::PushFactorsRequest> messages(1);
    *messages[0].mutable_header() = header;
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].tensor == nullptr) continue;
      ChunkSplitter splitter(static_cast<int>(i), pieces[i].tensor->data(),
                             static_cast<int64_t>(pieces[i].tensor->size()));
      v1::PushFactorsRequest message;
      while (splitter.Next(message.mutable_chunk()))
        messages.push_back(message);
    }
    return messages;
  }

  grpc::Status Push(int rank, int64_t step, const std::vector<Piece>& pieces,
                    v1::PushFactorsResponse* response) {
    return PushMessages(
        MakeMessages(MakePushHeader(rank, step, pieces), pieces), response);
  }

  static v1::PreconditionHeader MakeAsk(
      int rank, int64_t step, const std::vector<v1::LayerSpec>& layers,
      const std::vector<Tensor>& gradients) {
    v1::PreconditionHeader header = CoreDriver::MakeEnd(rank, step);
    for (size_t i = 0; i < gradients.size(); ++i) {
      v1::GradientItem* item = header.add_items();
      item->set_layer(static_cast<int>(i));
      item->set_rows(layers[i].d_out());
      item->set_cols(layers[i].d_in());
      item->set_checksum(ChecksumOf(gradients[i]));
    }
    return header;
  }

  // Sends everything, half-closes if `half_close`, reads to the end.
  Answers Ask(const v1::PreconditionHeader& header,
              const std::vector<Tensor>& gradients,
              std::chrono::milliseconds timeout = std::chrono::seconds(10),
              bool half_close = true) {
    grpc::ClientContext context;
    SetDeadline(&context, timeout);
    auto stream = stub_->Precondition(&context);
    v1::PreconditionRequest request;
    *request.mutable_header() = header;
    stream->Write(request);
    for (size_t i = 0; i < gradients.size(); ++i) {
      ChunkSplitter splitter(static_cast<int>(i), gradients[i]->data(),
                             static_cast<int64_t>(gradients[i]->size()));
      while (splitter.Next(request.mutable_chunk())) stream->Write(request);
    }
    if (half_close) stream->WritesDone();
    Answers answers;
    v1::PreconditionResponse response;
    while (stream->Read(&response)) {
      EXPECT_EQ(response.epoch(), 1u);
      if (response.has_reply()) {
        answers.replies[response.reply().item()] = response.reply();
        continue;
      }
      auto& values = answers.values[response.chunk().item()];
      EXPECT_EQ(response.chunk().offset(), values.size() * sizeof(float));
      const auto& data = response.chunk().data();
      const size_t old_size = values.size();
      values.resize(old_size + data.size() / sizeof(float));
      std::memcpy(values.data() + old_size, data.data(), data.size());
    }
    answers.status = stream->Finish();
    return answers;
  }

  std::unique_ptr<ServerRuntime> runtime_;
  std::unique_ptr<PreconditionerService> service_;
  std::unique_ptr<ServerControlService> control_;
  std::unique_ptr<Endpoint> endpoint_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Preconditioner::Stub> stub_;
  std::unique_ptr<v1::ServerControl::Stub> control_stub_;
  std::multimap<std::string, std::string> trailers_;
};

TEST_F(ServiceTest, FactorsInPreconditionedGradientsOut) {
  // Packed A of 724 takes 1 MiB and a bit: several chunks; so does its
  // gradient.
  const std::vector<v1::LayerSpec> layers = {MakeLayer("conv", 300, 301),
                                             MakeLayer("fc", 724, 724)};
  Serve(MakeJob(layers, 2, SyncOptions()));
  std::vector<Tensor> gradients;
  for (const v1::LayerSpec& layer : layers) {
    std::vector<float> values(layer.d_out() * layer.d_in());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i % 97) - 48;
    }
    gradients.push_back(MakeTensor(std::move(values)));
  }
  for (int rank = 0; rank < 2; ++rank) {
    auto pieces = MakeFactors(0, layers[0], 2, 4, 8);
    for (Piece& piece : MakeFactors(1, layers[1], 4, 0.5f, 8)) {
      pieces.push_back(std::move(piece));
    }
    v1::PushFactorsResponse response;
    ASSERT_TRUE(Push(rank, 0, pieces, &response).ok());
    ASSERT_EQ(response.results_size(), 4);
    EXPECT_EQ(response.epoch(), 1u);
    for (const auto& result : response.results()) {
      EXPECT_EQ(result.outcome(), v1::CONTRIBUTION_OUTCOME_ACCEPTED)
          << result.message();
    }
  }
  ASSERT_TRUE(Ask(CoreDriver::MakeEnd(1, 0), {}).status.ok());  // Commit only.
  const Answers answers = Ask(MakeAsk(0, 0, layers, gradients), gradients);
  ASSERT_TRUE(answers.status.ok()) << answers.status.error_message();
  ASSERT_EQ(answers.replies.size(), 2u);
  const float divisors[] = {8, 2};
  for (int layer = 0; layer < 2; ++layer) {
    const v1::LayerReply& reply = answers.replies.at(layer);
    ASSERT_EQ(reply.outcome(), v1::LAYER_OUTCOME_PRECONDITIONED)
        << reply.message();
    const std::vector<float>& values = answers.values.at(layer);
    ASSERT_EQ(values.size(), gradients[layer]->size());
    double inner_product = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double d = (*gradients[layer])[i];
      ASSERT_NEAR(values[i], d / divisors[layer], 1e-4);
      inner_product += d * d / divisors[layer];
    }
    EXPECT_NEAR(reply.inner_product(), inner_product, 1e-4 * inner_product);
    EXPECT_EQ(reply.checksum(), ChecksumOf(MakeTensor(values)));
    EXPECT_EQ(reply.version(), 1);
    EXPECT_TRUE(reply.has_age());
  }
  EXPECT_TRUE(StagingBecomesEmpty());
}

TEST_F(ServiceTest, EndsWhenAllIsAnsweredThoughTheCallerKeepsItsSideOpen) {
  Serve(MakeJob({kSmall}, 1, SyncOptions()));
  v1::PushFactorsResponse response;
  ASSERT_TRUE(Push(0, 0, MakeFactors(0, kSmall, 2, 3, 4), &response).ok());
  const Answers answers = Ask(MakeAsk(0, 0, {kSmall}, {kGradient}), {kGradient},
                              std::chrono::seconds(10), /*half_close=*/false);
  EXPECT_TRUE(answers.status.ok());
  EXPECT_EQ(answers.replies.at(0).version(), 1);
}

TEST_F(ServiceTest, AnswersBeforeTheCallersDeadline) {
  Serve(MakeJob({kSmall}, 2, SyncOptions()));
  const Answers answers = Ask(MakeAsk(0, 0, {kSmall}, {kGradient}), {kGradient},
                              std::chrono::milliseconds(1000));
  EXPECT_TRUE(answers.status.ok()) << answers.status.error_message();
  EXPECT_EQ(answers.replies.at(0).reason(), v1::FALLBACK_REASON_NOT_READY);
}

TEST_F(ServiceTest, BadItemsAreAnsweredByThemselves) {
  Serve(MakeJob({kSmall}, 1, SyncOptions()));
  auto pieces = MakeFactors(0, kSmall, 2, 3, 4);
  Piece unknown = pieces[0];
  unknown.item.set_layer(8);
  Piece wrong_shape = pieces[0];
  wrong_shape.tensor = PackedIdentity(3, 1);
  wrong_shape.item.set_dim(3);
  wrong_shape.item.set_checksum(ChecksumOf(wrong_shape.tensor));
  Piece negative = pieces[0];
  negative.item.set_dim(-5);
  negative.tensor = nullptr;
  Piece huge = negative;
  huge.item.set_dim(std::numeric_limits<int64_t>::max());
  v1::PushFactorsResponse response;
  // The refused ones come first in another step, so that they take no place.
  ASSERT_TRUE(
      Push(0, 0, {unknown, wrong_shape, negative, huge, pieces[1]}, &response)
          .ok());
  EXPECT_EQ(response.results(0).code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(response.results(1).code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(response.results(1).message(), HasSubstr("3x3, registered 2x2"));
  EXPECT_EQ(response.results(2).outcome(), v1::CONTRIBUTION_OUTCOME_REFUSED);
  EXPECT_EQ(response.results(3).outcome(), v1::CONTRIBUTION_OUTCOME_REFUSED);
  EXPECT_EQ(response.results(4).outcome(), v1::CONTRIBUTION_OUTCOME_ACCEPTED);

  std::vector<float> values = *pieces[0].tensor;
  values[1] = std::numeric_limits<float>::quiet_NaN();
  pieces[0].tensor = MakeTensor(values);
  pieces[0].item.set_checksum(ChecksumOf(pieces[0].tensor));
  ASSERT_TRUE(Push(0, 1, pieces, &response).ok());
  EXPECT_THAT(
      response.results(0).message(),
      AllOf(HasSubstr("job"), HasSubstr("'small'"), HasSubstr("factor A"),
            HasSubstr("step 1"), HasSubstr("1 of 3 entries")));
  ASSERT_TRUE(Ask(CoreDriver::MakeEnd(0, 1), {}).status.ok());
  ASSERT_TRUE(Push(0, 0, MakeFactors(0, kSmall, 2, 3, 4), &response).ok());
  EXPECT_EQ(response.results(0).outcome(), v1::CONTRIBUTION_OUTCOME_REFUSED);
  EXPECT_TRUE(StagingBecomesEmpty());
}

TEST_F(ServiceTest, ClosedStepIsLate) {
  Serve(MakeJob({kSmall}, 1, SyncOptions()));
  v1::PushFactorsResponse response;
  ASSERT_TRUE(Push(0, 5, MakeFactors(0, kSmall, 2, 3, 4), &response).ok());
  ASSERT_TRUE(Ask(CoreDriver::MakeEnd(0, 5), {}).status.ok());
  ASSERT_TRUE(Push(0, 4, MakeFactors(0, kSmall, 2, 3, 4), &response).ok());
  EXPECT_EQ(response.results(0).outcome(), v1::CONTRIBUTION_OUTCOME_LATE);
  EXPECT_EQ(response.results(0).code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(ServiceTest, OneByteTooFewStoresNothing) {
  Serve(MakeJob({kSmall}, 1, SyncOptions()));
  const auto pieces = MakeFactors(0, kSmall, 2, 3, 4);
  auto messages = MakeMessages(MakePushHeader(0, 0, pieces), pieces);
  messages[2].mutable_chunk()->mutable_data()->pop_back();
  v1::PushFactorsResponse response;
  const grpc::Status status = PushMessages(messages, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(),
              AllOf(HasSubstr("item 1"), HasSubstr("got 3 bytes, expected 4")));
  EXPECT_TRUE(StagingBecomesEmpty());
  ASSERT_TRUE(Push(0, 0, pieces, &response).ok());
  EXPECT_EQ(response.results(1).outcome(), v1::CONTRIBUTION_OUTCOME_ACCEPTED);

  const Tensor half = MakeTensor({1});
  const Answers answers = Ask(MakeAsk(0, 0, {kSmall}, {half}), {half});
  EXPECT_TRUE(answers.status.ok());
  EXPECT_EQ(answers.replies.at(0).reason(), v1::FALLBACK_REASON_BAD_GRADIENT);
  EXPECT_THAT(answers.replies.at(0).message(),
              HasSubstr("got 4 bytes, expected 8"));
}

TEST_F(ServiceTest, StreamsThatBreakTheOrderAreInvalid) {
  Serve(MakeJob({kSmall}, 1, SyncOptions()));
  const auto pieces = MakeFactors(0, kSmall, 2, 3, 4);
  const auto good = MakeMessages(MakePushHeader(0, 0, pieces), pieces);
  auto gap = good;
  gap[1].mutable_chunk()->set_offset(4);
  auto beyond = good;
  beyond[2].mutable_chunk()->set_item(2);
  auto longer = good;
  longer[2].mutable_chunk()->mutable_data()->push_back('x');
  const std::vector<std::vector<v1::PushFactorsRequest>> broken = {
      {},                                   // No header.
      {good[1], good[0]},                   // A chunk first.
      {good[0], good[0]},                   // Two headers.
      {good[0], v1::PushFactorsRequest()},  // Neither.
      {good[0], good[2], good[1]},          // Items out of order.
      gap,
      beyond,
      longer,
  };
  for (size_t i = 0; i < broken.size(); ++i) {
    v1::PushFactorsResponse response;
    EXPECT_EQ(PushMessages(broken[i], &response).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT)
        << i;
  }
  EXPECT_TRUE(StagingBecomesEmpty());
  const Tensor long_gradient = MakeTensor({1, 2, 3});
  EXPECT_EQ(Ask(MakeAsk(0, 0, {kSmall}, {long_gradient}), {long_gradient})
                .status.error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(StagingBecomesEmpty());
}

TEST_F(ServiceTest, OlderAssignmentGetsTheNewerOneInTheTrailers) {
  // Large enough to pass gRPC's default limit of metadata.
  std::vector<v1::LayerSpec> layers;
  for (int i = 0; i < 2000; ++i) {
    layers.push_back(MakeLayer(absl::StrCat("layer", i), 1, 1));
  }
  auto job = MakeJob(layers, 1, SyncOptions());
  Serve(job);
  job.mutable_config()->mutable_assignment()->set_epoch(2);
  job.mutable_config()->mutable_assignment()->mutable_owners(0)->set_server(
      "another");
  ASSERT_TRUE(Configure(job).ok());
  v1::PushFactorsResponse response;
  const grpc::Status status =
      Push(0, 0, MakeFactors(0, layers[0], 2, 3, 4), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED)
      << status.error_message();
  const auto attached = trailers_.find("kronserve-assignment-bin");
  ASSERT_NE(attached, trailers_.end());
  v1::Assignment assignment;
  ASSERT_TRUE(assignment.ParseFromString(attached->second));
  EXPECT_EQ(assignment.epoch(), 2u);
  EXPECT_EQ(assignment.owners(0).server(), "another");
  EXPECT_EQ(assignment.owners_size(), 2000);
}

TEST_F(ServiceTest, FencesOfACallAreStatuses) {
  Serve(MakeJob({kSmall}, 1, SyncOptions()));
  v1::PreconditionHeader header = CoreDriver::MakeEnd(0, 0);
  header.mutable_call()->set_job("unknown");
  EXPECT_EQ(Ask(header, {}).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  header = CoreDriver::MakeEnd(0, 0);
  header.mutable_call()->set_incarnation(IncarnationOf(5));
  EXPECT_EQ(Ask(header, {}).status.error_code(), grpc::StatusCode::ABORTED);
  header = CoreDriver::MakeEnd(0, 0);
  header.set_end(v1::STEP_END_UNSPECIFIED);
  EXPECT_EQ(Ask(header, {}).status.error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServiceTest, StagingLimitRefusesAPush) {
  Serve(MakeJob({kSmall}, 1, SyncOptions()), /*staging_limit=*/15);
  v1::PushFactorsResponse response;
  const grpc::Status status =
      Push(0, 0, MakeFactors(0, kSmall, 2, 3, 4), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(),
              AllOf(HasSubstr("needs 16 bytes"), HasSubstr("0 of 15")));
  EXPECT_EQ(Ask(MakeAsk(0, 0, {kSmall}, {kGradient}), {kGradient})
                .status.error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(ServiceTest, PushCancelledHalfWayStoresNothing) {
  const v1::LayerSpec layer = MakeLayer("fc", 1, 724);
  Serve(MakeJob({layer}, 1, SyncOptions()));
  const auto pieces = MakeFactors(0, layer, 2, 3, 4);
  const auto messages = MakeMessages(MakePushHeader(0, 0, pieces), pieces);
  {
    grpc::ClientContext context;
    SetDeadline(&context, std::chrono::seconds(10));
    v1::PushFactorsResponse response;
    auto writer = stub_->PushFactors(&context, &response);
    ASSERT_TRUE(writer->Write(messages[0]));
    ASSERT_TRUE(writer->Write(messages[1]));
    context.TryCancel();
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(StagingBecomesEmpty());
  v1::PushFactorsResponse response;
  ASSERT_TRUE(PushMessages(messages, &response).ok());
  EXPECT_EQ(response.results(0).outcome(), v1::CONTRIBUTION_OUTCOME_ACCEPTED)
      << response.results(0).message();
}

TEST_F(ServiceTest, CancelledWaitIsForgotten) {
  Serve(MakeJob({kSmall}, 2, SyncOptions()));
  {
    grpc::ClientContext context;
    SetDeadline(&context, std::chrono::seconds(10));
    auto stream = stub_->Precondition(&context);
    v1::PreconditionRequest request;
    *request.mutable_header() = MakeAsk(0, 0, {kSmall}, {kGradient});
    ASSERT_TRUE(stream->Write(request));
    ChunkSplitter splitter(0, kGradient->data(), 2);
    splitter.Next(request.mutable_chunk());
    ASSERT_TRUE(stream->Write(request));
    context.TryCancel();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(StagingBecomesEmpty());
  EXPECT_EQ(Status().counters().fallbacks(), 0);
}

TEST_F(ServiceTest, ControlCallsMapTheirErrors) {
  auto job = MakeJob({kSmall}, 1, SyncOptions());
  Serve(job);
  auto spoiled = job;
  spoiled.mutable_config()->mutable_layers(0)->set_d_out(0);
  EXPECT_EQ(Configure(spoiled).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  auto huge = MakeJob({MakeLayer("huge", 1, 1 << 20)}, 1, SyncOptions());
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

}  // namespace
}  // namespace kronserve::server
