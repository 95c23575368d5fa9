#include "client/include/kronserve/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "client/testing/fake_scheduler.h"
#include "client/testing/fake_transport.h"
#include "client/testing/faulty_transport.h"
#include "client/testing/messages.h"
#include "common/testing/status_matchers.h"

namespace kronserve::client {
namespace {

using ::kronserve::client::testing::FakeScheduler;
using ::kronserve::client::testing::FakeTransport;
using ::kronserve::client::testing::FaultyTransport;
using ::kronserve::client::testing::MakeAssignment;
using ::kronserve::client::testing::MakeTensor;
using ::kronserve::client::testing::SchedulerLink;
using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kBudgetMs = 200;

class ClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    request_.set_job("job");
    request_.set_world_size(1);
    request_.set_incarnation(7);
    for (int i = 0; i < 2; ++i) request_.add_layers();
    request_.mutable_options()->set_step_budget_ms(kBudgetMs);

    v1::JoinJobResponse ready;
    ready.set_state(v1::JOIN_STATE_READY);
    ready.set_heartbeat_ms(1);
    ready.mutable_world()->set_version(3);
    v1::RankInfo* self = ready.mutable_world()->add_ranks();
    self->set_node("n0");
    self->set_incarnation(7);
    *ready.mutable_assignment() = MakeAssignment(1, 1, {{"a"}, {"b"}});
    scheduler_.set_joins({ready});
  }

  absl::StatusOr<std::unique_ptr<Client>> Join(
      FaultyTransport::Faults faults = {}) {
    ClientDependencies dependencies;
    dependencies.scheduler = std::make_unique<SchedulerLink>(&scheduler_);
    dependencies.transport = std::make_unique<FaultyTransport>(
        std::make_unique<FakeTransport>(servers_), std::move(faults));
    return Client::Join(request_, absl::Seconds(5), std::move(dependencies));
  }

  static StepRequest Request(int64_t step) {
    StepRequest request;
    request.step = step;
    for (int layer = 0; layer < 2; ++layer) {
      Gradient gradient;
      gradient.item.set_layer(layer);
      gradient.item.set_rows(1);
      gradient.item.set_cols(2);
      gradient.values = MakeTensor({1, 2});
      request.gradients.push_back(gradient);
    }
    return request;
  }

  v1::JoinJobRequest request_;
  FakeScheduler scheduler_;
  FakeTransport::Servers servers_;
};

TEST_F(ClientTest, TakesAStepToEveryOwner) {
  std::vector<v1::CallHeader> calls;
  servers_.precondition = [&](const PreconditionCall& call,
                              std::vector<LayerAnswer>* answers) {
    calls.push_back(call.header.call());
    return FakeTransport::Echo(call, answers);
  };
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto client, Join());
  const StepAnswer answer = client->RunStep(Request(5));
  EXPECT_THAT(*answer.layers[0].values, ElementsAre(1, 2));
  EXPECT_THAT(*answer.layers[1].values, ElementsAre(1, 2));
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].job(), "job");
  EXPECT_EQ(calls[0].world_version(), 3);
  EXPECT_EQ(calls[0].step(), 5);
  EXPECT_EQ(calls[0].incarnation(), 7u);
}

TEST_F(ClientTest, BlackHoledServerCostsOneBudgetOnce) {
  FaultyTransport::Faults faults;
  faults.black_hole = [](const std::string& server, int64_t) {
    return server == "a";
  };
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto client, Join(std::move(faults)));
  absl::Time begin = SteadyClock().Now();
  StepAnswer answer = client->RunStep(Request(0));
  EXPECT_GE(SteadyClock().Now() - begin, absl::Milliseconds(kBudgetMs));
  EXPECT_EQ(answer.layers[0].reply.reason(), v1::FALLBACK_REASON_UNREACHABLE);
  EXPECT_EQ(answer.layers[1].reply.outcome(), v1::LAYER_OUTCOME_PRECONDITIONED);

  begin = SteadyClock().Now();
  answer = client->RunStep(Request(1));
  EXPECT_LT(SteadyClock().Now() - begin, absl::Milliseconds(kBudgetMs));
  EXPECT_THAT(answer.layers[0].reply.message(), HasSubstr("suspect"));
}

TEST_F(ClientTest, UnavailableServerIsRetriedWithinTheBudget) {
  std::atomic<int> failures{2};
  servers_.precondition = [&](const PreconditionCall& call,
                              std::vector<LayerAnswer>* answers) {
    if (failures-- > 0) return CallEnd{absl::UnavailableError("later"), {}};
    return FakeTransport::Echo(call, answers);
  };
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto client, Join());
  const StepAnswer answer = client->RunStep(Request(0));
  EXPECT_EQ(answer.layers[0].reply.outcome(), v1::LAYER_OUTCOME_PRECONDITIONED);
  EXPECT_EQ(answer.layers[1].reply.outcome(), v1::LAYER_OUTCOME_PRECONDITIONED);
}

TEST_F(ClientTest, HeartbeatsBringAssignmentsThatAreUsedWhenAgreed) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto client, Join());
  scheduler_.set_assignment(MakeAssignment(2, 1, {{"b"}, {"b"}}));
  // The beat after the one that brought it reports it.
  const size_t seen = scheduler_.heartbeats().size();
  ASSERT_TRUE(scheduler_.WaitForHeartbeats(seen + 3, absl::Seconds(10)));
  EXPECT_EQ(client->held_epoch(), 2u);
  EXPECT_EQ(client->used_epoch(), 1u);
  client->TakeVote(0, {false, false}, 2);
  EXPECT_EQ(client->used_epoch(), 2u);
  EXPECT_EQ(scheduler_.heartbeats().back().epoch(), 2u);
}

TEST_F(ClientTest, HeartbeatsReportTheNewestStep) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto client, Join());
  EXPECT_EQ(
      scheduler_.heartbeats().empty() ? -1 : scheduler_.heartbeats()[0].step(),
      -1);
  client->RunStep(Request(8));
  const size_t seen = scheduler_.heartbeats().size();
  ASSERT_TRUE(scheduler_.WaitForHeartbeats(seen + 2, absl::Seconds(10)));
  EXPECT_EQ(scheduler_.heartbeats().back().step(), 8);
  EXPECT_EQ(scheduler_.heartbeats().back().world_version(), 3);
}

TEST_F(ClientTest, LateAnswersAfterTheStepAreHarmless) {
  FaultyTransport::Faults faults;
  faults.hold = [](const std::string& server, int64_t step) {
    return server == "a" && step == 0;
  };
  ClientDependencies dependencies;
  dependencies.scheduler = std::make_unique<SchedulerLink>(&scheduler_);
  auto transport = std::make_unique<FaultyTransport>(
      std::make_unique<FakeTransport>(servers_), std::move(faults));
  FaultyTransport* const held = transport.get();
  dependencies.transport = std::move(transport);
  KRONSERVE_ASSERT_OK_AND_ASSIGN(
      const auto client,
      Client::Join(request_, absl::Seconds(5), std::move(dependencies)));

  EXPECT_EQ(client->RunStep(Request(0)).layers[0].reply.outcome(),
            v1::LAYER_OUTCOME_FALLBACK);
  held->Release();
  // The call was given up: its late end tells nothing, the server stays
  // suspect until a probe.
  EXPECT_EQ(client->RunStep(Request(1)).layers[0].reply.outcome(),
            v1::LAYER_OUTCOME_FALLBACK);
}

TEST_F(ClientTest, FinishReachesTheScheduler) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto client, Join());
  EXPECT_THAT(client->Finish(), IsOk());
  EXPECT_EQ(scheduler_.finishes(), 1);
}

TEST_F(ClientTest, ReplacedWorldEndsTheStepInProgressAndTellsItsOwner) {
  std::atomic<bool> told{false};
  FaultyTransport::Faults faults;
  faults.black_hole = [](const std::string&, int64_t) { return true; };
  request_.mutable_options()->set_step_budget_ms(60000);
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto client, Join(std::move(faults)));
  client->OnLost([&told] { told = true; });
  EXPECT_THAT(client->lost(), IsOk());
  scheduler_.set_status(absl::AbortedError("world 3 was replaced"));
  const absl::Time begin = SteadyClock().Now();
  const StepAnswer answer = client->RunStep(Request(5));
  EXPECT_LT(SteadyClock().Now() - begin, absl::Seconds(30));
  EXPECT_THAT(answer.layers[0].reply.message(), HasSubstr("was replaced"));
  EXPECT_THAT(client->lost(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("world 3")));
  // Who asks later is told at once, and later steps do not wait.
  told = false;
  client->OnLost([&told] { told = true; });
  EXPECT_TRUE(told);
  client->OnLost(nullptr);
  EXPECT_THAT(client->RunStep(Request(6)).layers[1].reply.message(),
              HasSubstr("was replaced"));
}

// Ranks 0 and 2 of three went on without rank 1.
TEST_F(ClientTest, RankIsTheOneOfTheWorld) {
  request_.set_world_size(3);
  request_.set_min_ranks(2);
  request_.set_rank(2);
  v1::JoinJobResponse ready;
  ready.set_state(v1::JOIN_STATE_READY);
  ready.set_heartbeat_ms(1);
  ready.mutable_world()->set_version(3);
  for (const uint64_t incarnation : {5, 7}) {
    v1::RankInfo* rank = ready.mutable_world()->add_ranks();
    rank->set_rank(ready.world().ranks_size() - 1);
    rank->set_node("n0");
    rank->set_incarnation(incarnation);
  }
  *ready.mutable_assignment() = MakeAssignment(1, 1, {{"a"}, {"b"}});
  scheduler_.set_joins({ready});
  std::vector<int> ranks;
  servers_.precondition = [&](const PreconditionCall& call,
                              std::vector<LayerAnswer>* answers) {
    ranks.push_back(call.header.call().rank());
    return FakeTransport::Echo(call, answers);
  };
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto client, Join());
  EXPECT_EQ(client->rank(), 1);
  client->RunStep(Request(0));
  EXPECT_THAT(ranks, ElementsAre(1, 1));
  ASSERT_TRUE(scheduler_.WaitForHeartbeats(1, absl::Seconds(5)));
  EXPECT_EQ(scheduler_.heartbeats()[0].rank(), 1);

  request_.set_incarnation(8);
  EXPECT_THAT(Join(), StatusIs(absl::StatusCode::kInternal,
                               HasSubstr("incarnation 8")));
  request_.set_incarnation(7);
  request_.set_min_ranks(3);
  EXPECT_THAT(Join(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("of 2 ranks")));
}

TEST_F(ClientTest, JoinRefusesAnAssignmentThatDoesNotFit) {
  v1::JoinJobResponse ready;
  ready.set_state(v1::JOIN_STATE_READY);
  ready.mutable_world()->set_version(3);
  v1::RankInfo* self = ready.mutable_world()->add_ranks();
  self->set_node("n0");
  self->set_incarnation(7);
  *ready.mutable_assignment() = MakeAssignment(1, 1, {{"a"}, {"b"}});
  ready.mutable_assignment()->set_job("other");
  scheduler_.set_joins({ready});
  EXPECT_THAT(Join(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("job 'other'")));
}

}  // namespace
}  // namespace kronserve::client
