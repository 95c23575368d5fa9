// PushFactors calls over a real endpoint on loopback.

#include "server/push_factors_service.h"

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <vector>

#include "server/testing/service_fixture.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::SampleLayer;
using ::testing::AllOf;
using testing::ChecksumOf;
using testing::CoreDriver;
using ::testing::HasSubstr;
using testing::kSmall;
using testing::MakeFactors;
using testing::MakeJob;
using testing::MakePushHeader;
using testing::MakeTensor;
using testing::PackedIdentity;
using testing::Piece;
using testing::ServiceTest;
using testing::SyncOptions;

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

TEST_F(ServiceTest, PushCancelledHalfWayStoresNothing) {
  const v1::LayerSpec layer = SampleLayer("fc", 1, 724);
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

}  // namespace
}  // namespace kronserve::server
