#include "client/scheduler_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/testing/fake_scheduler.h"
#include "client/testing/messages.h"
#include "common/testing/fake_clock.h"
#include "common/testing/status_matchers.h"

namespace kronserve::client {
namespace {

using ::kronserve::client::testing::FakeScheduler;
using ::kronserve::client::testing::MakeAssignment;
using ::kronserve::testing::FakeClock;
using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class SchedulerClientTest : public ::testing::Test {
 protected:
  // Waiting moves the clock.
  Timing timing() {
    return {&clock_, [this](absl::Duration delay) { clock_.Advance(delay); }};
  }

  static v1::JoinJobRequest Request() {
    v1::JoinJobRequest request;
    request.set_job("job");
    request.set_rank(1);
    request.set_world_size(1);
    request.set_incarnation(7);
    return request;
  }
  static v1::JoinJobResponse Pending() {
    v1::JoinJobResponse response;
    response.set_state(v1::JOIN_STATE_PENDING);
    response.add_waiting_for("rank 1 of 2");
    response.add_waiting_for("server 'a' to confirm");
    return response;
  }
  static v1::JoinJobResponse Ready() {
    v1::JoinJobResponse response;
    response.set_state(v1::JOIN_STATE_READY);
    response.mutable_world()->set_version(1);
    v1::RankInfo* rank = response.mutable_world()->add_ranks();
    rank->set_node("n0");
    rank->set_incarnation(7);
    return response;
  }

  FakeScheduler scheduler_;
  FakeClock clock_;
};

TEST_F(SchedulerClientTest, JoinPollsUntilReady) {
  scheduler_.set_joins({absl::UnavailableError("starting"), Pending(),
                        absl::DeadlineExceededError("slow"), Ready()});
  EXPECT_THAT(JoinJob(scheduler_, Request(), absl::Seconds(60), timing()),
              IsOk());
  EXPECT_THAT(scheduler_.join_requests(), SizeIs(4));
}

TEST_F(SchedulerClientTest, JoinThatNeverGetsReadySaysWhatIsMissing) {
  scheduler_.set_joins({Pending()});
  const absl::Time begin = clock_.Now();
  EXPECT_THAT(JoinJob(scheduler_, Request(), absl::Seconds(60), timing()),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("job 'job', rank 1"), HasSubstr("1m"),
                             HasSubstr("rank 1 of 2; server 'a' to confirm"))));
  EXPECT_LE(clock_.Now() - begin, absl::Seconds(60));
  EXPECT_GE(clock_.Now() - begin, absl::Seconds(59));
}

TEST_F(SchedulerClientTest, JoinWithoutASchedulerIsUnavailable) {
  scheduler_.set_joins({absl::UnavailableError("scheduler at x:1: refused")});
  EXPECT_THAT(JoinJob(scheduler_, Request(), absl::Seconds(1), timing()),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("scheduler at x:1: refused")));
}

TEST_F(SchedulerClientTest, JoinReturnsRefusalsAtOnce) {
  scheduler_.set_joins({absl::AlreadyExistsError("rank 1 is taken"), Ready()});
  EXPECT_THAT(JoinJob(scheduler_, Request(), absl::Seconds(60), timing()),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("taken")));
  EXPECT_THAT(scheduler_.join_requests(), SizeIs(1));
}

TEST_F(SchedulerClientTest, JoinChecksTheAnswer) {
  v1::JoinJobResponse two_ranks = Ready();
  v1::RankInfo* second = two_ranks.mutable_world()->add_ranks();
  second->set_rank(1);
  second->set_node("n1");
  scheduler_.set_joins({two_ranks});
  EXPECT_THAT(JoinJob(scheduler_, Request(), absl::Seconds(1), timing()),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("of 2 ranks and 0 owners")));
}

TEST_F(SchedulerClientTest, RendezvousWaitsForEveryKey) {
  RendezvousBoard board(&scheduler_, "job", 1, timing());
  ASSERT_THAT(board.Put("rank0", "x"), IsOk());
  EXPECT_THAT(board.Get({"rank0", "rank1"}, absl::Seconds(5)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("rank1"), HasSubstr("5s"),
                             Not(HasSubstr("rank0")))));
  ASSERT_THAT(board.Put("rank1", "y"), IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(
      const auto values, board.Get({"rank1", "rank0"}, absl::Seconds(5)));
  EXPECT_THAT(values, ElementsAre("y", "x"));
}

TEST_F(SchedulerClientTest, RendezvousRetriesOnlyAnUnreachableScheduler) {
  RendezvousBoard board(&scheduler_, "job", 1, timing());
  scheduler_.set_status(absl::UnavailableError("gone"));
  absl::Time begin = clock_.Now();
  EXPECT_THAT(board.Put("k", "v"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("gone")));
  EXPECT_GE(clock_.Now() - begin, absl::Seconds(9));

  scheduler_.set_status(absl::AbortedError("world 1 is old"));
  begin = clock_.Now();
  EXPECT_THAT(board.Put("k", "v"),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("old")));
  EXPECT_THAT(board.Get({"k"}, absl::Seconds(5)),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("old")));
  EXPECT_EQ(clock_.Now(), begin);
}

TEST_F(SchedulerClientTest, FinishIsIdempotent) {
  EXPECT_THAT(FinishJob(scheduler_, {}, timing()), IsOk());
  scheduler_.set_status(absl::NotFoundError("no such job"));
  EXPECT_THAT(FinishJob(scheduler_, {}, timing()), IsOk());
  scheduler_.set_status(absl::UnavailableError("gone"));
  EXPECT_THAT(FinishJob(scheduler_, {}, timing()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("gone")));
}

class HeartbeatsTest : public ::testing::Test {
 protected:
  Heartbeats::Options Options(absl::Duration interval) {
    Heartbeats::Options options;
    options.interval = interval;
    options.request = [] {
      v1::RankHeartbeatRequest request;
      request.set_job("job");
      request.set_step(42);
      request.set_epoch(1);
      return request;
    };
    options.on_assignment = [this](const v1::Assignment& newer) {
      newest_epoch_ = newer.epoch();
    };
    return options;
  }

  FakeScheduler scheduler_;
  uint64_t newest_epoch_ = 0;
};

TEST_F(HeartbeatsTest, ReportsTheStepAndHandsOnNewerAssignments) {
  Heartbeats heartbeats(&scheduler_, Options(absl::Seconds(1)));
  EXPECT_THAT(heartbeats.Beat(), IsOk());
  EXPECT_EQ(newest_epoch_, 0u);
  scheduler_.set_assignment(MakeAssignment(2, 1, {{"a"}}));
  EXPECT_THAT(heartbeats.Beat(), IsOk());
  EXPECT_EQ(newest_epoch_, 2u);
  EXPECT_EQ(scheduler_.heartbeats()[0].step(), 42);
}

TEST_F(HeartbeatsTest, GoOnWhileTheSchedulerIsAway) {
  scheduler_.set_status(absl::UnavailableError("gone"));
  Heartbeats heartbeats(&scheduler_, Options(absl::Milliseconds(1)));
  heartbeats.Start();
  EXPECT_TRUE(scheduler_.WaitForHeartbeats(20, absl::Seconds(10)));
}

}  // namespace
}  // namespace kronserve::client
