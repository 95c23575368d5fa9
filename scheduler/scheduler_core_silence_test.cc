// A scheduler that hears nobody, for whatever reason: PROTOCOL.md 5.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/testing/status_matchers.h"
#include "scheduler/scheduler_core.h"
#include "scheduler/testing/core_harness.h"

namespace kronserve::scheduler {
namespace {

using ::kronserve::scheduler::testing::CoreHarness;
using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// Heartbeats of 1 s, leases of 5 s, counted for 6 s.
class SilenceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_THAT(h_.AddServer("s1"), IsOk());
    ASSERT_THAT(h_.AddServer("s2"), IsOk());
    h_.JoinAll("j", 1);
    Train(2);
  }

  void Train(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      h_.Advance(absl::Seconds(1));
      ASSERT_THAT(h_.Beat("j", 0, ++step_, 1, 1), IsOk());
    }
  }

  void SetAlive(bool alive) {
    h_.servers["s1"].alive = h_.servers["s2"].alive = alive;
  }

  v1::MemberState StateOf(const std::string& name) {
    const v1::GetStatusResponse status = h_.core->GetStatus(h_.now);
    for (const v1::ServerStatus& server : status.servers()) {
      if (server.name() == name) return server.state();
    }
    return v1::MEMBER_STATE_UNSPECIFIED;
  }

  uint64_t epoch() { return h_.JobNamed("j").assignment().epoch(); }

  CoreHarness h_;
  int64_t step_ = 0;
};

TEST_F(SilenceTest, NobodyIsDeadWhileNobodyIsHeard) {
  SetAlive(false);
  h_.Advance(absl::Minutes(10));
  EXPECT_EQ(StateOf("s1"), v1::MEMBER_STATE_SUSPECT);
  EXPECT_EQ(StateOf("s2"), v1::MEMBER_STATE_SUSPECT);
  EXPECT_EQ(h_.JobNamed("j").state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(epoch(), 1u);
  EXPECT_THAT(h_.log, Contains(HasSubstr("no server and no rank was heard")));
  SetAlive(true);
  Train(10);
  EXPECT_EQ(epoch(), 1u);
  EXPECT_THAT(h_.log, Not(Contains(HasSubstr("is dead"))));
}

TEST_F(SilenceTest, OfTwoTheOneThatDoesNotComeBackDies) {
  SetAlive(false);
  h_.Advance(absl::Minutes(1));
  h_.servers["s1"].alive = true;
  Train(3);
  EXPECT_EQ(StateOf("s2"), v1::MEMBER_STATE_SUSPECT);
  EXPECT_EQ(epoch(), 1u);
  Train(4);
  EXPECT_EQ(StateOf("s1"), v1::MEMBER_STATE_ALIVE);
  EXPECT_EQ(StateOf("s2"), v1::MEMBER_STATE_DEAD);
  EXPECT_EQ(epoch(), 2u);
}

TEST_F(SilenceTest, ServersDieOnTimeWhileRanksAreHeard) {
  SetAlive(false);
  Train(5);
  EXPECT_EQ(StateOf("s1"), v1::MEMBER_STATE_SUSPECT);
  Train(1);
  EXPECT_EQ(StateOf("s1"), v1::MEMBER_STATE_DEAD);
  EXPECT_EQ(StateOf("s2"), v1::MEMBER_STATE_DEAD);
}

TEST_F(SilenceTest, AReplacementThatKnocksGetsTheNameOfTheLastServer) {
  SetAlive(false);
  h_.Advance(absl::Minutes(1));
  h_.servers["s1"].address = "elsewhere:7000";
  h_.servers["s1"].incarnation = 7;
  int refused = 0;
  while (!h_.Register("s1").ok() && refused < 100) {
    ++refused;
    h_.Advance(absl::Seconds(1));
  }
  // Its word, though refused, shows that it is the other who is silent.
  EXPECT_GE(refused, 2);
  EXPECT_LE(refused, 7);
}

TEST_F(SilenceTest, OurOwnLatenessIsNoSilenceOfTheirs) {
  // Frozen for 15 s; heartbeats come before the tick, then the other way round.
  for (const bool beats_first : {true, false}) {
    h_.now += absl::Seconds(15);
    if (beats_first) h_.HeartbeatAll();
    h_.core->Tick(h_.now);
    h_.Pump();
    EXPECT_THAT(h_.log, Not(Contains(HasSubstr("no server and no rank"))));
    Train(2);
  }
  EXPECT_EQ(epoch(), 1u);
  // Given once, not twice: 14.9 s for the freeze, 6 s for the silence.
  h_.now += absl::Seconds(15);
  h_.core->Tick(h_.now);
  h_.servers["s2"].alive = false;
  Train(7);
  EXPECT_EQ(StateOf("s2"), v1::MEMBER_STATE_DEAD);
}

TEST_F(SilenceTest, NumbersThatCannotBeAreNotTaken) {
  v1::RegisterServerRequest request;
  request.set_name("s3");
  request.set_address("s3:7000");
  request.set_incarnation(3);
  request.set_memory_bytes(1 << 30);
  request.set_term_seen(~uint64_t{0});
  EXPECT_THAT(h_.core->RegisterServer(request, h_.now),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("term_seen is 18446744073709551615")));
  request.set_term_seen(0);
  v1::JobHeld* held = request.add_held();
  held->set_job("j");
  held->set_world_version(1);
  held->set_epoch(~uint64_t{0});
  ASSERT_THAT(h_.core->RegisterServer(request, h_.now), IsOk());
  h_.Pump();
  EXPECT_THAT(h_.log, Contains(HasSubstr("out of range")));
  Train(2);
  EXPECT_LT(epoch(), 10u);
}

}  // namespace
}  // namespace kronserve::scheduler
