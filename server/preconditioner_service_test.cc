// The data path over a real endpoint on loopback: pushes and gradients
// together.

#include "server/preconditioner_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "server/testing/service_fixture.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::SampleLayer;
using ::testing::AllOf;
using testing::Answers;
using testing::ChecksumOf;
using testing::CoreDriver;
using ::testing::HasSubstr;
using testing::IncarnationOf;
using testing::kGradient;
using testing::kSmall;
using testing::MakeFactors;
using testing::MakeJob;
using testing::MakePushHeader;
using testing::MakeTensor;
using testing::Piece;
using testing::ServiceTest;
using testing::SyncOptions;

TEST_F(ServiceTest, FactorsInPreconditionedGradientsOut) {
  // Packed A of 724 takes 1 MiB and a bit: several chunks; so does its
  // gradient.
  const std::vector<v1::LayerSpec> layers = {SampleLayer("conv", 300, 301),
                                             SampleLayer("fc", 724, 724)};
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
    layers.push_back(SampleLayer(absl::StrCat("layer", i), 1, 1));
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
  const auto listed = trailers_.find("kronserve-elsewhere-bin");
  ASSERT_NE(listed, trailers_.end());
  v1::LayersElsewhere elsewhere;
  ASSERT_TRUE(elsewhere.ParseFromString(listed->second));
  EXPECT_THAT(elsewhere.layers(), ::testing::ElementsAre(0));
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

}  // namespace
}  // namespace kronserve::server
