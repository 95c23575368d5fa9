#include "scheduler/candidate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "common/testing/fake_clock.h"
#include "common/testing/status_matchers.h"
#include "scheduler/memory/factory.h"

namespace kronserve::scheduler {
namespace {

using ::kronserve::testing::FakeClock;
using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::_;
using ::testing::HasSubstr;

// What the candidate's election is told to answer, and what it was asked.
struct Script {
  absl::StatusOr<Election::Result> result = Election::Result();
  std::function<std::unique_ptr<StateStore>()> store = memory::CreateStateStore;
  int resigned = 0;
};

class ScriptedElection final : public Election {
 public:
  explicit ScriptedElection(Script* script) : script_(*script) {}
  std::string Describe() const override { return "script"; }
  absl::StatusOr<Result> Campaign(const std::string&) override {
    return script_.result;
  }
  std::unique_ptr<StateStore> OpenStore() override { return script_.store(); }
  void Resign() override { ++script_.resigned; }

 private:
  Script& script_;
};

class CandidateTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<SchedulerRuntime>> CreateRuntime(
      std::unique_ptr<StateStore> store) {
    ++runtimes_;
    RuntimeDependencies dependencies;
    dependencies.clock = &clock_;
    dependencies.store = std::move(store);
    dependencies.link = CreateGrpcServerLink(&clock_);
    return SchedulerRuntime::Create(CoreOptions(), std::move(dependencies));
  }

  void Win(int64_t leadership) {
    script_.result =
        Election::Result{clock_.Now() + absl::Seconds(5), "a:1", leadership};
    candidate_.Round("a:1");
  }

  absl::Status Ask() {
    return active_
        .Run([](SchedulerCore* core,
                absl::Time now) -> absl::StatusOr<v1::GetStatusResponse> {
          return core->GetStatus(now);
        })
        .status();
  }

  FakeClock clock_;
  ActiveRuntime active_{&clock_};
  Script script_;
  int runtimes_ = 0;
  Candidate candidate_{std::make_unique<ScriptedElection>(&script_),
                       [this](std::unique_ptr<StateStore> store) {
                         return CreateRuntime(std::move(store));
                       },
                       &active_, &clock_};
};

TEST_F(CandidateTest, AnswersOnceItLeads) {
  EXPECT_THAT(Ask(), StatusIs(absl::StatusCode::kUnavailable,
                              HasSubstr("no scheduler leads")));
  Win(1);
  EXPECT_THAT(Ask(), IsOk());
  EXPECT_EQ(active_.leader(), "a:1");
}

TEST_F(CandidateTest, NamesTheOneThatLeadsInstead) {
  script_.result = Election::Result{absl::InfinitePast(), "b:2", 0};
  candidate_.Round("a:1");
  const absl::Status status = Ask();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                               HasSubstr("the leader is at b:2")));
  EXPECT_EQ(status.GetPayload(kLeaderPayload), absl::Cord("b:2"));
}

TEST_F(CandidateTest, TellsItsOwnUnavailableFromThatOfAFollower) {
  Win(1);
  const auto busy = [](SchedulerCore*, absl::Time) -> absl::StatusOr<int> {
    return absl::UnavailableError("not stored yet");
  };
  const absl::Status status = active_.Run(busy).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                               HasSubstr("not stored yet")));
  EXPECT_EQ(status.GetPayload(kLeaderPayload), absl::Cord());
}

// As after SIGSTOP and SIGCONT: nothing else has run yet.
TEST_F(CandidateTest, WhoWasFrozenPastItsLeaseDoesNotAnswer) {
  Win(1);
  clock_.Advance(absl::Seconds(5));
  const absl::Status status = Ask();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                               HasSubstr("no scheduler leads")));
  EXPECT_FALSE(status.GetPayload(kLeaderPayload).has_value());
}

TEST_F(CandidateTest, RenewalsProlongOneLeadership) {
  Win(1);
  clock_.Advance(absl::Seconds(4));
  Win(1);
  clock_.Advance(absl::Seconds(4));
  EXPECT_THAT(Ask(), IsOk());
  EXPECT_EQ(runtimes_, 1);
}

TEST_F(CandidateTest, LeadsOnWhileTheElectionCannotBeReachedUntilTheLeaseEnds) {
  Win(1);
  script_.result = absl::UnavailableError("etcd is away");
  clock_.Advance(absl::Seconds(4));
  candidate_.Round("a:1");
  EXPECT_THAT(Ask(), IsOk());
  clock_.Advance(absl::Seconds(1));
  candidate_.Round("a:1");
  EXPECT_THAT(Ask(), StatusIs(absl::StatusCode::kUnavailable, _));
  // It is back, and nobody else has led meanwhile.
  Win(1);
  EXPECT_THAT(Ask(), IsOk());
  EXPECT_EQ(runtimes_, 2);
}

TEST_F(CandidateTest, AnotherLeadershipBeginsWithWhatIsStored) {
  Win(1);
  Win(2);
  EXPECT_EQ(runtimes_, 2);
  EXPECT_THAT(Ask(), IsOk());
}

TEST_F(CandidateTest, AStoreThatCannotBeReadLetsAnotherLead) {
  script_.store = [] {
    auto store = memory::CreateStateStore();
    EXPECT_THAT(store->Write({{kTermKey, "many"}}), IsOk());
    return store;
  };
  Win(1);
  EXPECT_EQ(script_.resigned, 1);
  EXPECT_THAT(Ask(), StatusIs(absl::StatusCode::kUnavailable,
                              HasSubstr("no scheduler leads")));
}

TEST_F(CandidateTest, ResignsWhenItIsStoppedInPeace) {
  Win(1);
  candidate_.Stop(/*resign=*/true);
  EXPECT_EQ(script_.resigned, 1);
  EXPECT_THAT(Ask(), StatusIs(absl::StatusCode::kUnavailable, _));
}

}  // namespace
}  // namespace kronserve::scheduler
