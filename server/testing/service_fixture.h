// A server's data path on an endpoint on loopback, and a client's calls to it.

#ifndef KRONSERVE_SERVER_TESTING_SERVICE_FIXTURE_H_
#define KRONSERVE_SERVER_TESTING_SERVICE_FIXTURE_H_

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/grpc_channel.h"
#include "common/grpc_server.h"
#include "common/testing/status_matchers.h"
#include "server/preconditioner_service.h"
#include "server/server_control_service.h"
#include "server/testing/core_driver.h"

namespace kronserve::server::testing {

inline const v1::LayerSpec kSmall =
    ::kronserve::testing::SampleLayer("small", 1, 2);
inline const Tensor kGradient = MakeTensor({12, -24});

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
    ASSERT_THAT(runtime, ::kronserve::testing::IsOk());
    runtime_ = *std::move(runtime);
    service_ = std::make_unique<PreconditionerService>(runtime_.get());
    control_ = std::make_unique<ServerControlService>(runtime_.get());
    auto endpoint = Endpoint::Start({}, {service_.get(), control_.get()});
    ASSERT_THAT(endpoint, ::kronserve::testing::IsOk());
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
    grpc::Status status = writer->Finish();
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

}  // namespace kronserve::server::testing

#endif  // KRONSERVE_SERVER_TESTING_SERVICE_FIXTURE_H_
