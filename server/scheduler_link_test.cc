#include "server/scheduler_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "common/testing/status_matchers.h"
#include "server/testing/fake_scheduler_service.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::IsOk;
using Seen = testing::FakeSchedulerService::Seen;

class SchedulerLinkTest : public ::testing::Test {
 protected:
  void Serve(const std::string& listen = "127.0.0.1:0") {
    auto endpoint = Endpoint::Start({listen}, {&scheduler_});
    ASSERT_THAT(endpoint, IsOk());
    endpoint_ = *std::move(endpoint);
  }

  std::unique_ptr<SchedulerLink> MakeLink(const std::string& scheduler) {
    LinkOptions options;
    options.scheduler = scheduler;
    options.name = "s0";
    options.incarnation = 77;
    options.memory_bytes = 1234;
    options.cost.set_seconds(0.5);
    options.refresh_threads = 3;
    LinkCallbacks callbacks;
    callbacks.fill = [](bool registering, v1::ServerHeartbeatRequest* request,
                        uint64_t* term) {
      v1::JobHeld* held = request->add_held();
      held->set_job("job");
      held->set_epoch(3);
      if (registering) held->mutable_config()->set_job("job");
      request->mutable_load()->set_layers(2);
      *term = 4;
    };
    callbacks.term = [this](uint64_t term) { term_ = term; };
    callbacks.heartbeat = [this](const v1::ServerHeartbeatResponse& response) {
      peers_ = response.peers_size();
    };
    callbacks.registered = [this] { ++registered_; };
    return std::make_unique<SchedulerLink>(options, std::move(callbacks));
  }

  testing::FakeSchedulerService scheduler_;
  std::unique_ptr<Endpoint> endpoint_;
  std::atomic<uint64_t> term_{0};
  std::atomic<int> peers_{0};
  std::atomic<int> registered_{0};
};

TEST_F(SchedulerLinkTest, RegistersThenSendsHeartbeats) {
  Serve();
  auto link = MakeLink(endpoint_->address());
  link->Start("10.0.0.1:7000");
  ASSERT_TRUE(scheduler_.Await(
      [](const Seen& seen) { return seen.heartbeats.size() >= 2; }));
  EXPECT_TRUE(link->is_registered());
  EXPECT_EQ(term_, 9u);
  EXPECT_EQ(registered_, 1);
  EXPECT_EQ(peers_, 2);
  scheduler_.Await([](const Seen& seen) {
    EXPECT_EQ(seen.registrations.size(), 1u);
    const v1::RegisterServerRequest& first = seen.registrations[0];
    EXPECT_EQ(first.name(), "s0");
    EXPECT_EQ(first.address(), "10.0.0.1:7000");
    EXPECT_EQ(first.incarnation(), 77u);
    EXPECT_EQ(first.memory_bytes(), 1234);
    EXPECT_EQ(first.cost().seconds(), 0.5);
    EXPECT_EQ(first.term_seen(), 4u);
    EXPECT_EQ(first.held(0).epoch(), 3u);
    EXPECT_EQ(first.held(0).config().job(), "job");
    EXPECT_EQ(first.refresh_threads(), 3);
    EXPECT_FALSE(seen.heartbeats[0].held(0).has_config());
    EXPECT_EQ(seen.heartbeats[0].name(), "s0");
    EXPECT_EQ(seen.heartbeats[0].incarnation(), 77u);
    EXPECT_EQ(seen.heartbeats[0].held(0).job(), "job");
    EXPECT_EQ(seen.heartbeats[0].load().layers(), 2);
    return true;
  });
}

TEST_F(SchedulerLinkTest, RegistersAgainWhenTheSchedulerForgotIt) {
  Serve();
  auto link = MakeLink(endpoint_->address());
  link->Start("x:1");
  ASSERT_TRUE(scheduler_.Await(
      [](const Seen& seen) { return !seen.heartbeats.empty(); }));
  scheduler_.SetNextHeartbeat({grpc::StatusCode::NOT_FOUND, "who are you"});
  EXPECT_TRUE(scheduler_.Await(
      [](const Seen& seen) { return seen.registrations.size() >= 2; }));
  link->Stop();
  EXPECT_EQ(registered_, 1);
}

TEST_F(SchedulerLinkTest, TriesUntilTheSchedulerTakesIt) {
  scheduler_.SetRegistration({grpc::StatusCode::ALREADY_EXISTS, "taken"});
  Serve();
  auto link = MakeLink(endpoint_->address());
  link->Start("x:1");
  ASSERT_TRUE(scheduler_.Await(
      [](const Seen& seen) { return seen.registrations.size() >= 2; }));
  EXPECT_FALSE(link->is_registered());
  scheduler_.SetRegistration(grpc::Status::OK);
  EXPECT_TRUE(scheduler_.Await(
      [](const Seen& seen) { return !seen.heartbeats.empty(); }));
}

TEST_F(SchedulerLinkTest, FindsASchedulerThatComesBack) {
  Serve();
  const std::string address = endpoint_->address();
  auto link = MakeLink(address);
  link->Start("x:1");
  ASSERT_TRUE(scheduler_.Await(
      [](const Seen& seen) { return !seen.heartbeats.empty(); }));
  endpoint_.reset();
  size_t before = 0;
  scheduler_.Await([&](const Seen& seen) {
    before = seen.heartbeats.size();
    return true;
  });
  Serve(address);
  EXPECT_TRUE(scheduler_.Await(
      [&](const Seen& seen) { return seen.heartbeats.size() > before; }));
}

TEST_F(SchedulerLinkTest, HeartbeatSoonDoesNotWaitForThePeriod) {
  scheduler_.SetHeartbeatMs(3'600'000);
  Serve();
  auto link = MakeLink(endpoint_->address());
  link->Start("x:1");
  ASSERT_TRUE(scheduler_.Await(
      [](const Seen& seen) { return !seen.registrations.empty(); }));
  link->HeartbeatSoon();
  EXPECT_TRUE(scheduler_.Await(
      [](const Seen& seen) { return !seen.heartbeats.empty(); }));
}

TEST_F(SchedulerLinkTest, StopsThoughNobodyAnswers) {
  auto link = MakeLink("127.0.0.1:1");
  link->Start("x:1");
  link->Stop();
  link->Stop();
  link->HeartbeatSoon();
  EXPECT_FALSE(link->is_registered());
}

}  // namespace
}  // namespace kronserve::server
