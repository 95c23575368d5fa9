#include "common/grpc_leader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"

namespace kronserve {
namespace {

using ::testing::ElementsAre;

// Answers by address, without a network; metadata comes with real calls only
// (scheduler/replicated_service_test.cc follows it).
class Peers {
 public:
  grpc::Status Answer(const std::shared_ptr<grpc::Channel>&,
                      grpc::ClientContext*) {
    return answers.at(calls++);
  }
  LeaderChannels::Attempt attempt() {
    return [this](const auto& channel, auto* context) {
      return Answer(channel, context);
    };
  }

  std::vector<grpc::Status> answers;
  size_t calls = 0;
};

const grpc::Status kDown(grpc::StatusCode::UNAVAILABLE, "nobody listens");
const grpc::Status kLate(grpc::StatusCode::DEADLINE_EXCEEDED, "too late");
const grpc::Status kWrong(grpc::StatusCode::NOT_FOUND, "no such job");

TEST(LeaderChannelsTest, OneAddressIsOneAttempt) {
  LeaderChannels channels("a:1");
  Peers peers;
  peers.answers = {kDown};
  const LeaderChannels::Outcome outcome = channels.Call(peers.attempt());
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(outcome.address, "a:1");
  EXPECT_EQ(peers.calls, 1u);
}

TEST(LeaderChannelsTest, TriesTheNextAndStaysThere) {
  LeaderChannels channels("a:1,b:2,c:3");
  Peers peers;
  peers.answers = {kDown, grpc::Status::OK, kWrong};
  EXPECT_EQ(channels.Call(peers.attempt()).address, "b:2");
  const LeaderChannels::Outcome next = channels.Call(peers.attempt());
  EXPECT_EQ(next.address, "b:2");
  EXPECT_EQ(next.status.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(LeaderChannelsTest, GivesUpWhenAllWereTried) {
  LeaderChannels channels("a:1,b:2");
  Peers peers;
  peers.answers = {kDown, kDown, grpc::Status::OK};
  EXPECT_EQ(channels.Call(peers.attempt()).address, "b:2");
  EXPECT_EQ(channels.Call(peers.attempt()).address, "a:1");
}

TEST(LeaderChannelsTest, ASilentOneTakesTheTimeOfOneCallOnly) {
  LeaderChannels channels("a:1,b:2");
  Peers peers;
  peers.answers = {kLate, grpc::Status::OK};
  EXPECT_EQ(channels.Call(peers.attempt()).status.error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(channels.Call(peers.attempt()).address, "b:2");
}

}  // namespace
}  // namespace kronserve
