// Servers that are emptied, by hand or because they want to stop.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/testing/status_matchers.h"
#include "scheduler/scheduler_core.h"
#include "scheduler/testing/core_harness.h"

namespace kronserve::scheduler {
namespace {

using ::kronserve::scheduler::testing::Claim;
using ::kronserve::scheduler::testing::CoreHarness;
using ::kronserve::scheduler::testing::SampleLayer;
using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class DrainTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_THAT(h_.AddServer("s1"), IsOk());
    ASSERT_THAT(h_.AddServer("s2"), IsOk());
    h_.JoinAll("j", 1);
    Train(3);
  }

  void Train(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      h_.Advance(absl::Seconds(1));
      ASSERT_THAT(h_.Beat("j", 0, ++step_, 1, 1), IsOk());
    }
  }

  absl::StatusOr<v1::DrainServerResponse> Drain(const std::string& server,
                                                bool undo = false) {
    v1::DrainServerRequest request;
    request.set_server(server);
    request.set_undo(undo);
    auto response = h_.core->DrainServer(request, h_.now);
    h_.Pump();
    return response;
  }

  std::vector<std::string> Owners() {
    return CoreHarness::Owners(h_.JobNamed("j").assignment());
  }

  v1::ServerStatus Server(const std::string& name) {
    const v1::GetStatusResponse status = h_.core->GetStatus(h_.now);
    for (const v1::ServerStatus& server : status.servers()) {
      if (server.name() == name) return server;
    }
    return v1::ServerStatus();
  }

  CoreHarness h_;
  int64_t step_ = 0;
};

TEST_F(DrainTest, ByHandLastsUntilItIsUndone) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto begun, Drain("s1"));
  EXPECT_EQ(begun.layers_left(), 2);
  EXPECT_TRUE(Server("s1").draining());
  EXPECT_FALSE(Server("s2").draining());
  Train(10);
  EXPECT_THAT(Owners(), Each("s2"));
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto again, Drain("s1"));
  EXPECT_EQ(again.layers_left(), 0);
  EXPECT_TRUE(h_.servers["s1"].heard.drained());
  EXPECT_FALSE(h_.servers["s2"].heard.drained());
  // Neither a restart of the scheduler nor one of the server ends it.
  h_.Start();
  h_.servers["s1"].Restart();
  Train(10);
  EXPECT_TRUE(Server("s1").draining());
  EXPECT_THAT(Owners(), Each("s2"));
  ASSERT_THAT(Drain("s1", /*undo=*/true), IsOk());
  Train(10);
  EXPECT_FALSE(Server("s1").draining());
  EXPECT_THAT(Owners(), AllOf(Contains("s1"), Contains("s2")));
  EXPECT_FALSE(h_.servers["s1"].heard.drained());
  h_.Start();
  EXPECT_FALSE(Server("s1").draining());
}

TEST_F(DrainTest, AnswersWithItsErrors) {
  EXPECT_THAT(Drain("s9"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'s9'")));
  ASSERT_THAT(Drain("s1"), IsOk());
  EXPECT_THAT(Drain("s2"), StatusIs(absl::StatusCode::kFailedPrecondition,
                                    HasSubstr("no other server is left")));
  EXPECT_FALSE(Server("s2").draining());
}

TEST_F(DrainTest, IsStoredAndTriedAgain) {
  h_.store_status = absl::UnavailableError("disk full");
  ASSERT_THAT(Drain("s1"), IsOk());
  EXPECT_THAT(h_.core->Stored("", h_.core->LastSave("")),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("disk full")));
  h_.store_status = absl::OkStatus();
  Train(2);
  EXPECT_THAT(h_.core->Stored("", h_.core->LastSave("")), IsOk());
  EXPECT_EQ(h_.store->Load()->count("drain/s1"), 1u);
}

TEST_F(DrainTest, AStoppingServerIsToldWhenItIsEmpty) {
  h_.servers["s1"].draining = true;
  Train(2);
  EXPECT_FALSE(h_.servers["s1"].heard.drained());
  EXPECT_TRUE(Server("s1").draining());
  Train(8);
  EXPECT_TRUE(h_.servers["s1"].heard.drained());
  EXPECT_THAT(Owners(), Each("s2"));
  // It may be replaced at once, from wherever, and the new one gets a share.
  h_.servers["s1"].Restart();
  h_.servers["s1"].address = "elsewhere:7001";
  ASSERT_THAT(h_.Register("s1"), IsOk());
  EXPECT_FALSE(Server("s1").draining());
  Train(10);
  EXPECT_THAT(Owners(), AllOf(Contains("s1"), Contains("s2")));
}

TEST_F(DrainTest, WhoWasNotToldToLeaveKeepsItsName) {
  h_.servers["s1"].draining = true;
  h_.servers["s1"].hold_transfers = true;
  Train(8);
  EXPECT_FALSE(h_.servers["s1"].heard.drained());
  h_.servers["s1"].Restart();
  h_.servers["s1"].address = "elsewhere:7001";
  EXPECT_THAT(h_.Register("s1"),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("s1:7000")));
}

TEST_F(DrainTest, ADrainedServerThatGoesIsNoLoss) {
  h_.servers["s1"].draining = true;
  Train(10);
  h_.servers["s1"].alive = false;
  Train(8);
  EXPECT_THAT(h_.log, Contains(HasSubstr("'s1' has left after its drain")));
  EXPECT_THAT(h_.log, Not(Contains(HasSubstr("is dead"))));
}

TEST_F(DrainTest, TheLastServerKeepsItsLayersUntilAnotherComes) {
  ASSERT_THAT(Drain("s1"), IsOk());
  Train(10);
  h_.servers["s2"].draining = true;
  Train(5);
  EXPECT_THAT(Owners(), Each("s2"));
  EXPECT_FALSE(h_.servers["s2"].heard.drained());
  EXPECT_THAT(h_.JobNamed("j").placement_note(),
              AllOf(HasSubstr("4 layers stay on draining servers"),
                    HasSubstr("'fc0' on 's2'")));
  ASSERT_THAT(h_.AddServer("s3"), IsOk());
  Train(10);
  EXPECT_THAT(Owners(), Each("s3"));
  EXPECT_TRUE(h_.servers["s2"].heard.drained());
}

TEST_F(DrainTest, AServerThatChangesItsMindGetsAShareAgain) {
  h_.servers["s1"].draining = true;
  Train(10);
  ASSERT_THAT(Owners(), Each("s2"));
  h_.servers["s1"].draining = false;
  Train(10);
  EXPECT_THAT(Owners(), AllOf(Contains("s1"), Contains("s2")));
}

TEST_F(DrainTest, NoNewJobIsPlacedOnIt) {
  ASSERT_THAT(Drain("s1"), IsOk());
  ASSERT_THAT(h_.Join(Claim("k", 0, 1)), IsOk());
  EXPECT_THAT(CoreHarness::Owners(h_.JobNamed("k").assignment()), Each("s2"));
}

TEST_F(DrainTest, WithEveryServerDrainingAJobWaitsAndSaysWhy) {
  h_.servers["s1"].draining = h_.servers["s2"].draining = true;
  Train(2);
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto response,
                                 h_.Join(Claim("k", 0, 1)));
  EXPECT_THAT(response.waiting_for(),
              ElementsAre("every preconditioner server is being drained"));
}

TEST_F(DrainTest, HeartbeatsNamePeersAndJobs) {
  Train(2);
  const v1::ServerHeartbeatResponse& heard = h_.servers["s1"].heard;
  ASSERT_EQ(heard.peers_size(), 1);
  EXPECT_EQ(heard.peers(0).name(), "s2");
  EXPECT_EQ(heard.peers(0).address(), "s2:7000");
  EXPECT_EQ(heard.peers(0).incarnation(), 1u);
  ASSERT_EQ(heard.jobs_size(), 1);
  EXPECT_EQ(heard.jobs(0).job(), "j");
  EXPECT_EQ(heard.jobs(0).step(), step_ - 1);
  h_.servers["s2"].alive = false;
  h_.Advance(absl::Seconds(8));
  EXPECT_THAT(h_.servers["s1"].heard.peers(), IsEmpty());
}

TEST_F(DrainTest, StatusShowsWhetherStateComesBack) {
  h_.servers["s1"].state_recovery = v1::STATE_RECOVERY_NONE;
  Train(2);
  EXPECT_EQ(Server("s1").state_recovery(), v1::STATE_RECOVERY_NONE);
  EXPECT_EQ(Server("s2").state_recovery(), v1::STATE_RECOVERY_SHARED);
}

}  // namespace
}  // namespace kronserve::scheduler
