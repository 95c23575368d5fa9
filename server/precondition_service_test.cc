// Precondition calls over a real endpoint on loopback.

#include "server/precondition_service.h"

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <chrono>

#include "server/testing/service_fixture.h"

namespace kronserve::server {
namespace {

using testing::Answers;
using testing::kGradient;
using testing::kSmall;
using testing::MakeFactors;
using testing::MakeJob;
using testing::ServiceTest;
using testing::SyncOptions;

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

}  // namespace
}  // namespace kronserve::server
