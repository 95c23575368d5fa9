#include "client/grpc_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "client/testing/fake_preconditioner.h"
#include "client/testing/messages.h"
#include "common/grpc_server.h"
#include "common/mutex.h"
#include "common/testing/status_matchers.h"

namespace kronserve::client {
namespace {

using ::kronserve::client::testing::FakePreconditioner;
using ::kronserve::client::testing::MakeAssignment;
using ::kronserve::client::testing::MakeTensor;
using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// What one call brought; Wait() for its end.
class Outcome {
 public:
  Transport::OnLayer on_layer() {
    return [this](LayerAnswer answer) {
      MutexLock lock(&mu_);
      layers_.push_back(std::move(answer));
    };
  }
  Transport::OnDone on_done() {
    return [this](const CallEnd& end) { Finish(end, {}); };
  }
  Transport::OnPushDone on_push_done() {
    return [this](const CallEnd& end, const v1::PushFactorsResponse& response) {
      Finish(end, response);
    };
  }

  CallEnd Wait() {
    MutexLock lock(&mu_);
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (ends_ == 0 && absl::Now() < deadline) {
      changed_.WaitFor(&mu_, deadline - absl::Now());
    }
    EXPECT_EQ(ends_, 1);
    return end_;
  }
  const std::vector<LayerAnswer>& layers() const { return layers_; }
  const v1::PushFactorsResponse& response() const { return response_; }
  int ends() {
    MutexLock lock(&mu_);
    return ends_;
  }

 private:
  void Finish(const CallEnd& end, const v1::PushFactorsResponse& response) {
    MutexLock lock(&mu_);
    end_ = end;
    response_ = response;
    ++ends_;
    changed_.NotifyAll();
  }

  Mutex mu_;
  CondVar changed_;
  int ends_ = 0;
  CallEnd end_;
  v1::PushFactorsResponse response_;
  std::vector<LayerAnswer> layers_;
};

class GrpcTransportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(endpoint_, Endpoint::Start({}, {&server_}));
  }
  void TearDown() override { server_.Release(); }

  Target To(absl::Duration timeout = absl::Seconds(20)) const {
    return {"a", endpoint_->address(), timeout};
  }

  // Gradients [1, n] of layers 5, 6, ...
  PreconditionCall Gradients(const std::vector<std::vector<float>>& values) {
    PreconditionCall call;
    call.target = To();
    for (const auto& gradient : values) {
      v1::GradientItem* item = call.header.add_items();
      item->set_layer(4 + call.header.items_size());
      item->set_rows(1);
      item->set_cols(static_cast<int64_t>(gradient.size()));
      call.tensors.push_back(MakeTensor(gradient));
    }
    return call;
  }

  FakePreconditioner server_;
  std::unique_ptr<Endpoint> endpoint_;
  std::unique_ptr<Transport> transport_ = CreateGrpcTransport();
};

TEST_F(GrpcTransportTest, PushCarriesHeaderAndTensors) {
  PushCall call;
  call.target = To();
  call.header.mutable_call()->set_job("job");
  call.header.set_damping(0.5);
  v1::ContributionItem* item = call.header.add_items();
  item->set_body(v1::CONTRIBUTION_BODY_EMPTY_UNUSED);
  call.tensors.push_back(nullptr);
  item = call.header.add_items();
  item->set_body(v1::CONTRIBUTION_BODY_DATA);
  item->set_dim(2);
  call.tensors.push_back(MakeTensor({1, 2, 3}));

  Outcome outcome;
  transport_->PushFactors(std::move(call), outcome.on_push_done());
  ASSERT_THAT(outcome.Wait().status, IsOk());
  EXPECT_THAT(outcome.response().results(), SizeIs(2));
  EXPECT_EQ(server_.pushed().call().job(), "job");
  EXPECT_EQ(server_.pushed().damping(), 0.5);
  const auto tensors = server_.pushed_tensors();
  ASSERT_THAT(tensors, SizeIs(2));
  ASSERT_NE(tensors[1], nullptr);
  EXPECT_THAT(*tensors[1], ElementsAre(1, 2, 3));
}

TEST_F(GrpcTransportTest, AnswersComePerLayerAndInChunks) {
  // 2.5 MiB: three chunks each way.
  std::vector<float> large(655360);
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<float>(i);
  Outcome outcome;
  transport_->Precondition(Gradients({{1, 2}, large}), outcome.on_layer(),
                           outcome.on_done());
  ASSERT_THAT(outcome.Wait().status, IsOk());
  EXPECT_EQ(server_.chunks(), 1 + 3);
  ASSERT_THAT(outcome.layers(), SizeIs(2));
  EXPECT_EQ(outcome.layers()[0].reply.layer(), 6);
  EXPECT_EQ(outcome.layers()[1].reply.layer(), 5);
  EXPECT_THAT(*outcome.layers()[1].values, ElementsAre(2, 4));
  const std::vector<float>& doubled = *outcome.layers()[0].values;
  ASSERT_THAT(doubled, SizeIs(large.size()));
  for (size_t i = 0; i < large.size(); ++i) {
    ASSERT_EQ(doubled[i], 2 * large[i]) << i;
  }
}

TEST_F(GrpcTransportTest, CommitWithoutItemsIsACallToo) {
  Outcome outcome;
  transport_->Precondition(Gradients({}), outcome.on_layer(),
                           outcome.on_done());
  EXPECT_THAT(outcome.Wait().status, IsOk());
  EXPECT_THAT(outcome.layers(), IsEmpty());
}

TEST_F(GrpcTransportTest, AbortedBringsTheNewerAssignment) {
  server_.AbortWith(MakeAssignment(9, 2, {{"b", 30}}));
  Outcome end;
  transport_->Precondition(Gradients({{1, 2}}), end.on_layer(), end.on_done());
  const CallEnd aborted = end.Wait();
  EXPECT_THAT(aborted.status,
              StatusIs(absl::StatusCode::kAborted, HasSubstr("server 'a'")));
  ASSERT_TRUE(aborted.newer.has_value());
  EXPECT_EQ(aborted.newer->epoch(), 9u);
  EXPECT_EQ(aborted.newer->owners(0).server(), "b");
  EXPECT_THAT(aborted.elsewhere, ElementsAre(0));

  PushCall call;
  call.target = To();
  Outcome push;
  transport_->PushFactors(std::move(call), push.on_push_done());
  const CallEnd aborted_push = push.Wait();
  ASSERT_TRUE(aborted_push.newer.has_value());
  EXPECT_EQ(aborted_push.newer->epoch(), 9u);
}

TEST_F(GrpcTransportTest, DamagedAnswerIsDataLoss) {
  server_.CorruptAnswers();
  Outcome outcome;
  transport_->Precondition(Gradients({{1, 2}}), outcome.on_layer(),
                           outcome.on_done());
  EXPECT_THAT(outcome.Wait().status,
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("checksum")));
  EXPECT_THAT(outcome.layers(), IsEmpty());
}

TEST_F(GrpcTransportTest, TimeoutEndsACallNobodyAnswers) {
  server_.Hang();
  PreconditionCall call = Gradients({{1, 2}});
  call.target = To(absl::Milliseconds(50));
  Outcome outcome;
  transport_->Precondition(std::move(call), outcome.on_layer(),
                           outcome.on_done());
  EXPECT_THAT(outcome.Wait().status,
              StatusIs(absl::StatusCode::kDeadlineExceeded, _));
}

TEST_F(GrpcTransportTest, NobodyListensIsUnavailable) {
  PreconditionCall call = Gradients({{1, 2}});
  endpoint_->Shutdown(absl::ZeroDuration());
  Outcome outcome;
  transport_->Precondition(std::move(call), outcome.on_layer(),
                           outcome.on_done());
  EXPECT_THAT(outcome.Wait().status,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("'a'")));
}

TEST_F(GrpcTransportTest, ShutdownEndsEveryCallOnce) {
  server_.Hang();
  Outcome pending;
  transport_->Precondition(Gradients({{1, 2}}), pending.on_layer(),
                           pending.on_done());
  transport_->Shutdown();
  ASSERT_EQ(pending.ends(), 1) << "Shutdown() returned too early";
  EXPECT_THAT(pending.Wait().status, StatusIs(absl::StatusCode::kCancelled, _));

  Outcome late;
  transport_->Precondition(Gradients({{1, 2}}), late.on_layer(),
                           late.on_done());
  EXPECT_THAT(late.Wait().status, StatusIs(absl::StatusCode::kCancelled, _));
  PushCall call;
  call.target = To();
  Outcome late_push;
  transport_->PushFactors(std::move(call), late_push.on_push_done());
  EXPECT_THAT(late_push.Wait().status,
              StatusIs(absl::StatusCode::kCancelled, _));
}

}  // namespace
}  // namespace kronserve::client
