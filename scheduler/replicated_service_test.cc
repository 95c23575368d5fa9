// Two schedulers on a real etcd, asked as their clients ask.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/grpc_channel.h"
#include "common/grpc_leader.h"
#include "common/grpc_status.h"
#include "common/testing/status_matchers.h"
#include "kronserve/v1/scheduler.grpc.pb.h"
#include "scheduler/etcd/factory.h"
#include "scheduler/scheduler_process.h"
#include "scheduler/testing/etcd_process.h"

namespace kronserve::scheduler {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

class ReplicasTest : public ::testing::Test {
 protected:
  void SetUp() override {
    etcd_ = std::make_unique<testing::EtcdProcess>();
    first_ = Start();
    AwaitLeader(*first_, first_->address());
    second_ = Start();
    AwaitLeader(*second_, first_->address());
  }

  std::unique_ptr<SchedulerProcess> Start() {
    SchedulerOptions options;
    options.listen = "127.0.0.1:0";
    options.heartbeat = absl::Milliseconds(200);
    options.lease = absl::Seconds(2);
    auto scheduler = SchedulerProcess::Start(
        options,
        etcd::CreateElection({etcd_->endpoint(), "/test/", options.lease},
                             &SteadyClock()));
    EXPECT_THAT(scheduler, IsOk());
    return *std::move(scheduler);
  }

  static absl::StatusOr<v1::GetStatusResponse> Ask(const std::string& addresses,
                                                   bool local,
                                                   int* attempts = nullptr) {
    LeaderChannels channels(addresses);
    v1::GetStatusRequest request;
    request.set_local(local);
    v1::GetStatusResponse response;
    const LeaderChannels::Outcome outcome =
        channels.Call([&](const auto& channel, grpc::ClientContext* context) {
          if (attempts != nullptr) ++*attempts;
          context->set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
          v1::Scheduler::Stub stub(channel);
          return stub.GetStatus(context, request, &response);
        });
    if (outcome.status.ok()) return response;
    return FromGrpcStatus(outcome.status, outcome.address);
  }

  // Asks until `scheduler` says that `leader` leads.
  static void AwaitLeader(const SchedulerProcess& scheduler,
                          const std::string& leader) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (true) {
      const auto status = Ask(scheduler.address(), /*local=*/true);
      if (status.ok() && status->leader() == leader) return;
      ASSERT_LT(absl::Now(), deadline);
    }
  }

  // A job without layers: its world is stored and needs no server.
  static void JoinOneRank(const std::string& addresses) {
    LeaderChannels channels(addresses);
    v1::JoinJobRequest request;
    request.set_job("j");
    request.set_run_id("run");
    request.set_world_size(1);
    request.set_node("n");
    request.set_incarnation(1);
    v1::JoinJobResponse response;
    const absl::Time deadline = absl::Now() + kPatience;
    while (response.state() != v1::JOIN_STATE_READY) {
      ASSERT_LT(absl::Now(), deadline);
      const LeaderChannels::Outcome outcome =
          channels.Call([&](const auto& channel, grpc::ClientContext* context) {
            v1::Scheduler::Stub stub(channel);
            return stub.JoinJob(context, request, &response);
          });
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    }
  }

  std::unique_ptr<testing::EtcdProcess> etcd_;
  std::unique_ptr<SchedulerProcess> first_;
  std::unique_ptr<SchedulerProcess> second_;
};

TEST_F(ReplicasTest, TheFollowerAnswersForItselfOrNamesTheLeader) {
  const auto own = Ask(second_->address(), /*local=*/true);
  ASSERT_THAT(own, IsOk());
  EXPECT_EQ(own->term(), 0u);
  EXPECT_EQ(own->store(), "etcd:" + etcd_->endpoint());
  int attempts = 0;
  const auto followed = Ask(second_->address(), /*local=*/false, &attempts);
  ASSERT_THAT(followed, IsOk());
  EXPECT_EQ(attempts, 2);
  EXPECT_GE(followed->term(), 1u);
  EXPECT_EQ(followed->leader(), first_->address());
  EXPECT_NE(followed->incarnation(), own->incarnation());
  v1::Scheduler::Stub stub(CreateChannel(second_->address()));
  grpc::ClientContext context;
  v1::ServerHeartbeatResponse response;
  EXPECT_THAT(
      FromGrpcStatus(stub.ServerHeartbeat(
                         &context, v1::ServerHeartbeatRequest(), &response),
                     "follower"),
      StatusIs(absl::StatusCode::kUnavailable,
               HasSubstr("the leader is at " + first_->address())));
}

TEST_F(ReplicasTest, AKilledLeaderIsReplacedAndItsJobsAreKept) {
  const std::string addresses =
      absl::StrCat(first_->address(), ",", second_->address());
  JoinOneRank(addresses);
  const auto before = Ask(addresses, /*local=*/false);
  ASSERT_THAT(before, IsOk());
  first_->Kill();
  AwaitLeader(*second_, second_->address());
  const auto after = Ask(addresses, /*local=*/false);
  ASSERT_THAT(after, IsOk());
  EXPECT_GT(after->term(), before->term());
  ASSERT_EQ(after->jobs_size(), 1);
  EXPECT_EQ(after->jobs(0).world().version(), 1);
}

TEST_F(ReplicasTest, WhoShutsDownHandsOverAtOnce) {
  const absl::Time start = absl::Now();
  first_->Shutdown(absl::Seconds(1));
  AwaitLeader(*second_, second_->address());
  // It need not wait for the end of a lease: one campaign is 0.5 s.
  EXPECT_LT(absl::Now() - start, absl::Seconds(2));
}

TEST_F(ReplicasTest, WithoutEtcdNobodyLeadsForLong) {
  etcd_->Kill();
  AwaitLeader(*first_, "");
  EXPECT_THAT(Ask(first_->address(), /*local=*/false),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("no scheduler leads just now")));
  etcd_->Start();
  const absl::Time deadline = absl::Now() + kPatience;
  while (!Ask(first_->address(), /*local=*/false).ok()) {
    ASSERT_LT(absl::Now(), deadline);
  }
}

}  // namespace
}  // namespace kronserve::scheduler
