// Jobs, worlds, assignments and fences: PROTOCOL.md 2 and 9.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "server/testing/core_driver.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::SampleLayer;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using testing::CoreDriver;
using testing::DefaultCoreOptions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IncarnationOf;
using testing::MakeCall;
using testing::MakeFactors;
using testing::MakeJob;
using testing::MakePushHeader;
using testing::MakeTensor;
using testing::SyncOptions;

const v1::LayerSpec kLayer = SampleLayer("fc1", 1, 2);
const v1::LayerSpec kOther = SampleLayer("fc2", 1, 2);
const Tensor kGradient = MakeTensor({12, -24});
// No step can follow it.
constexpr int64_t kNewest = std::numeric_limits<int64_t>::max();

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() : job_(MakeJob({kLayer, kOther}, 2, SyncOptions())) {}

  void Start() { ASSERT_THAT(driver_.Configure(job_), IsOk()); }

  v1::JobConfig& config() { return *job_.mutable_config(); }

  // The next world: one rank more or less, starts at `start_step`.
  void StartWorld(int num_ranks, int64_t start_step) {
    auto next = MakeJob({kLayer, kOther}, num_ranks, SyncOptions());
    *config().mutable_world()->mutable_ranks() = next.config().world().ranks();
    config().mutable_world()->set_version(config().world().version() + 1);
    config().mutable_world()->set_start_step(start_step);
    ASSERT_THAT(driver_.Configure(job_), IsOk());
  }

  absl::Status Push(const v1::CallHeader& call, int layer = 0) {
    const auto pieces = MakeFactors(layer, kLayer, 2, 3, 4);
    auto header = MakePushHeader(0, 0, pieces);
    *header.mutable_call() = call;
    return driver_.Push(header, pieces).status();
  }

  const LayerState* layer(int index = 0) {
    return driver_.core.FindLayerState("job", index);
  }

  v1::ConfigureJobRequest job_;
  CoreDriver driver_;
};

v1::Assignment AttachedAssignment(const absl::Status& status) {
  v1::Assignment assignment;
  const auto payload = status.GetPayload(kAssignmentPayload);
  EXPECT_TRUE(payload.has_value());
  if (payload.has_value()) assignment.ParseFromString(std::string(*payload));
  return assignment;
}

TEST_F(ConfigTest, LayersStartWithNothingClosedBeforeTheStart) {
  config().mutable_world()->set_start_step(7);
  config().mutable_assignment()->mutable_owners(1)->set_from_step(9);
  Start();
  EXPECT_EQ(layer(0)->rounds().closed_through(), 6);
  EXPECT_EQ(layer(1)->rounds().closed_through(), 8);
  EXPECT_EQ(layer(0)->updates(), 0);
  EXPECT_THAT(layer(0)->rounds().contributors(), ElementsAre(0, 1));
}

TEST_F(ConfigTest, ContradictionsAreNamed) {
  struct Case {
    std::function<void(v1::ConfigureJobRequest&)> spoil;
    std::string message;
  };
  const Case cases[] = {
      {[](auto& r) { r.set_term(0); }, "term"},
      {[](auto& r) { r.mutable_config()->clear_job(); }, "no name"},
      {[](auto& r) { r.mutable_config()->mutable_layers(0)->set_d_in(-1); },
       "d_in"},
      {[](auto& r) { r.mutable_config()->mutable_world()->set_version(0); },
       "world version 0"},
      {[](auto& r) {
         r.mutable_config()->mutable_world()->mutable_ranks(1)->set_rank(0);
       },
       "rank entry 1"},
      {[](auto& r) { r.mutable_config()->mutable_world()->clear_ranks(); },
       "0 ranks"},
      {[](auto& r) { r.mutable_config()->mutable_assignment()->set_epoch(0); },
       "epoch"},
      {[](auto& r) {
         r.mutable_config()
             ->mutable_assignment()
             ->mutable_owners()
             ->RemoveLast();
       },
       "1 owners for 2 layers"},
      {[](auto& r) {
         r.mutable_config()->mutable_assignment()->mutable_owners(1)->set_layer(
             0);
       },
       "owner entry 1"},
      {[](auto& r) {
         r.mutable_config()->mutable_world()->set_start_step(kNewest);
       },
       "starts at step 9223372036854775807"},
      {[](auto& r) {
         r.mutable_config()
             ->mutable_assignment()
             ->mutable_owners(1)
             ->set_from_step(kNewest);
       },
       "from step 9223372036854775807"},
  };
  for (const Case& c : cases) {
    auto spoiled = job_;
    c.spoil(spoiled);
    EXPECT_THAT(
        driver_.Configure(spoiled),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message)));
  }
  EXPECT_TRUE(driver_.core.Held().empty());
}

TEST_F(ConfigTest, JobThatDoesNotFitIsRefusedWithBothNumbers) {
  CoreOptions options = DefaultCoreOptions();
  options.memory_limit_bytes = int64_t{2} << 30;
  CoreDriver driver(options);
  // One packed factor alone takes 2 GiB.
  const auto huge = MakeJob({SampleLayer("embed", 8, 32768)}, 1, SyncOptions());
  EXPECT_THAT(driver.Configure(huge),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("needs"),
                             HasSubstr("2147483648 of 2147483648"))));
  EXPECT_TRUE(driver.core.Held().empty());
  EXPECT_THAT(driver.Configure(MakeJob({kLayer}, 1, SyncOptions())), IsOk());
  EXPECT_GT(driver.core.Status().predicted_bytes(), 0);
}

TEST_F(ConfigTest, LargestDimensionsAreRefusedWithoutAllocating) {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  EXPECT_THAT(
      driver_.Configure(
          MakeJob({SampleLayer("x", kMost, kMost)}, 1, SyncOptions())),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("needs")));
}

TEST_F(ConfigTest, OlderTermIsAbortedAlsoWhenOnlyAnAnswerShowedTheNewer) {
  job_.set_term(5);
  Start();
  job_.set_term(4);
  EXPECT_THAT(driver_.Configure(job_),
              StatusIs(absl::StatusCode::kAborted,
                       AllOf(HasSubstr("term 4"), HasSubstr("term 5"))));
  EXPECT_THAT(driver_.Drop(1, 4),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("term 4")));
  driver_.core.SeeTerm(6);
  job_.set_term(5);
  EXPECT_THAT(driver_.Configure(job_),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("term 6")));
}

TEST_F(ConfigTest, OlderWorldOrEpochChangesNothing) {
  const auto first = job_;
  Start();
  config().mutable_assignment()->set_epoch(3);
  Start();
  StartWorld(2, 10);
  ASSERT_THAT(driver_.Configure(first), IsOk());
  const auto held = driver_.core.Held();
  ASSERT_EQ(held.size(), 1u);
  EXPECT_EQ(held[0].epoch(), 3u);
  EXPECT_EQ(held[0].world_version(), 2);
  EXPECT_EQ(layer()->rounds().closed_through(), 9);
}

TEST_F(ConfigTest, NewerWorldWithAnOlderEpochContradictsItself) {
  config().mutable_assignment()->set_epoch(3);
  Start();
  config().mutable_assignment()->set_epoch(2);
  config().mutable_world()->set_version(2);
  EXPECT_THAT(driver_.Configure(job_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("epoch 2"), HasSubstr("epoch 3"))));
}

TEST_F(ConfigTest, NewWorldFencesTheOldOneAndKeepsTheAverages) {
  Start();
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_THAT(driver_.Push(rank, 0, MakeFactors(0, kLayer, 2, 3, 4)), IsOk());
    ASSERT_THAT(driver_.Commit(rank, 0), IsOk());
  }
  ASSERT_THAT(driver_.Push(0, 1, MakeFactors(0, kLayer, 2, 3, 4)), IsOk());
  const uint64_t waiting = driver_.Ask(0, 1, {0, 1, 2, kGradient});
  ASSERT_EQ(driver_.executor.Find(waiting), nullptr);

  StartWorld(3, 5);
  ASSERT_NE(driver_.executor.Find(waiting), nullptr);
  EXPECT_EQ(driver_.executor.Find(waiting)->reply.reason(),
            v1::FALLBACK_REASON_NOT_READY);
  EXPECT_EQ(layer()->rounds().num_open(), 0);
  EXPECT_EQ(layer()->rounds().closed_through(), 4);
  EXPECT_THAT(layer()->rounds().contributors(), ElementsAre(0, 1, 2));
  EXPECT_EQ(layer()->updates(), 1);
  EXPECT_EQ(driver_.counters().contributions_late(), 2);
  EXPECT_EQ(driver_.core.Status().staged_bytes(), 0);
  const absl::Status old = Push(MakeCall(0, 5));
  EXPECT_THAT(old, StatusIs(absl::StatusCode::kAborted,
                            AllOf(HasSubstr("world 1"), HasSubstr("world 2"))));
  EXPECT_EQ(AttachedAssignment(old).epoch(), 1u);
}

TEST_F(ConfigTest, GradientThatArrivesInANewWorldIsNotReady) {
  Start();
  Effects effects;
  auto header = CoreDriver::MakeEnd(0, 1);
  v1::GradientItem* item = header.add_items();
  item->set_rows(1);
  item->set_cols(2);
  auto ticket = driver_.core.EndStep(header, driver_.now,
                                     driver_.now + absl::Seconds(1), &effects);
  ASSERT_THAT(ticket, IsOk());
  StartWorld(2, 0);
  driver_.core.AddGradient(ticket->requests[0], {kGradient, {}}, driver_.now,
                           &effects);
  ASSERT_EQ(effects.replies.size(), 1u);
  EXPECT_EQ(effects.replies[0].reply.reason(), v1::FALLBACK_REASON_NOT_READY);
}

TEST_F(ConfigTest, AveragesAheadOfTheJobAreKeptAndSaid) {
  Start();
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_THAT(driver_.Push(rank, 42, MakeFactors(0, kLayer, 2, 3, 4)),
                IsOk());
    ASSERT_THAT(driver_.Commit(rank, 42), IsOk());
  }
  StartWorld(1, 40);
  EXPECT_EQ(layer()->updates(), 1);
  EXPECT_THAT(driver_.executor.warnings(),
              ElementsAre(AllOf(HasSubstr("averages of step 42"),
                                HasSubstr("job at 40"))));
}

// Every rank always pushes A = I: it must stay I whatever the world.
TEST_F(ConfigTest, DivisorsFollowTheWorld) {
  Start();
  int64_t step = 0;
  const auto push_and_end = [&](int rank) {
    const auto pieces = MakeFactors(0, kLayer, 1, 1, 8);
    auto header = MakePushHeader(rank, step, pieces);
    header.mutable_call()->set_world_version(config().world().version());
    ASSERT_THAT(driver_.Push(header, pieces), IsOk());
    auto end = CoreDriver::MakeEnd(rank, step);
    *end.mutable_call() = header.call();
    ASSERT_THAT(driver_.End(end), IsOk());
  };
  for (const int num_ranks : {4, 3, 5}) {
    StartWorld(num_ranks, step);
    for (int i = 0; i < 3; ++i, ++step) {
      for (int rank = 0; rank < num_ranks; ++rank) push_and_end(rank);
      EXPECT_THAT(*layer()->averages().a, ElementsAre(1, 0, 1));
    }
  }
  EXPECT_EQ(layer()->updates(), 9);
}

TEST_F(ConfigTest, LayersComeAndGoWithTheAssignment) {
  config().mutable_assignment()->mutable_owners(1)->set_server("s1");
  Start();
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_THAT(driver_.Push(rank, 0, MakeFactors(0, kLayer, 2, 3, 4)), IsOk());
    ASSERT_THAT(driver_.Commit(rank, 0), IsOk());
  }
  ASSERT_EQ(layer(1), nullptr);
  const int64_t bytes = driver_.core.Status().predicted_bytes();
  // Layer 1 comes, layer 0 stays with all it has.
  config().mutable_assignment()->set_epoch(2);
  config().mutable_assignment()->mutable_owners(1)->set_server("s0");
  config().mutable_assignment()->mutable_owners(1)->set_from_step(6);
  Start();
  EXPECT_EQ(layer(0)->updates(), 1);
  EXPECT_EQ(layer(0)->rounds().closed_through(), 0);
  ASSERT_NE(layer(1), nullptr);
  EXPECT_EQ(layer(1)->rounds().closed_through(), 5);
  EXPECT_GT(driver_.core.Status().predicted_bytes(), bytes);
  // Layer 0 goes: what waits for it is answered.
  ASSERT_THAT(driver_.Push(0, 1, MakeFactors(0, kLayer, 2, 3, 4)), IsOk());
  const uint64_t waiting = driver_.Ask(0, 1, {0, 1, 2, kGradient});
  config().mutable_assignment()->set_epoch(3);
  config().mutable_assignment()->mutable_owners(0)->set_server("s1");
  Start();
  EXPECT_EQ(layer(0), nullptr);
  EXPECT_EQ(driver_.executor.Find(waiting)->reply.reason(),
            v1::FALLBACK_REASON_NOT_READY);
  EXPECT_EQ(driver_.core.Status().staged_bytes(), 0);
}

TEST_F(ConfigTest, OlderEpochIsGoodWhileTheOwnerIsTheSame) {
  Start();
  config().mutable_assignment()->set_epoch(4);
  config().mutable_assignment()->mutable_owners(1)->set_server("s1");
  config().mutable_assignment()->mutable_owners(1)->set_from_step(3);
  Start();
  EXPECT_THAT(Push(MakeCall(0, 0), 0), IsOk());  // Epoch 1.
  const absl::Status moved = Push(MakeCall(0, 3), 1);
  EXPECT_THAT(moved,
              StatusIs(absl::StatusCode::kAborted,
                       AllOf(HasSubstr("'fc2'"), HasSubstr("'s1'"),
                             HasSubstr("epoch 4"), HasSubstr("epoch 1"))));
  EXPECT_EQ(AttachedAssignment(moved).epoch(), 4u);
  EXPECT_EQ(AttachedAssignment(moved).owners(1).server(), "s1");
  EXPECT_FALSE(driver_.executor.behind());
  // The caller knows more than this server.
  v1::CallHeader newer = MakeCall(0, 3);
  newer.set_epoch(5);
  EXPECT_THAT(Push(newer, 1),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("epoch 5")));
  EXPECT_TRUE(driver_.executor.behind());
}

TEST_F(ConfigTest, StepBeforeTheLayerCameIsNotAnsweredHere) {
  config().mutable_assignment()->mutable_owners(0)->set_from_step(10);
  Start();
  EXPECT_THAT(Push(MakeCall(0, 9)),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("step 10")));
  EXPECT_THAT(Push(MakeCall(0, 10)), IsOk());
}

TEST_F(ConfigTest, FencesOfACall) {
  EXPECT_THAT(Push(MakeCall(0, 0)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("'job'")));
  EXPECT_TRUE(driver_.executor.behind());
  Start();
  v1::CallHeader call = MakeCall(0, 0);
  call.set_world_version(2);
  EXPECT_THAT(Push(call),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("world 2"), HasSubstr("world 1"))));
  call = MakeCall(2, 0);
  EXPECT_THAT(Push(call), StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("rank 2")));
  call = MakeCall(0, 0);
  call.set_incarnation(IncarnationOf(1));
  EXPECT_THAT(Push(call), StatusIs(absl::StatusCode::kAborted,
                                   HasSubstr("incarnation 1001")));
  for (const auto& spoil : std::vector<std::function<void(v1::CallHeader&)>>{
           [](auto& c) { c.clear_job(); }, [](auto& c) { c.set_epoch(0); },
           [](auto& c) { c.set_world_version(0); },
           [](auto& c) { c.set_step(-1); },
           [](auto& c) { c.set_step(kNewest); },
           [](auto& c) { c.set_incarnation(0); }}) {
    call = MakeCall(0, 0);
    spoil(call);
    EXPECT_THAT(Push(call), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("call header")));
  }
}

TEST_F(ConfigTest, SettingsOfAPushAreChecked) {
  Start();
  const auto pieces = MakeFactors(0, kLayer, 2, 3, 4);
  auto header = MakePushHeader(0, 0, pieces);
  header.set_damping(-1);
  EXPECT_THAT(
      driver_.Push(header, pieces),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("damping is -1")));
  header = MakePushHeader(0, 0, pieces);
  header.set_factor_decay(1);
  EXPECT_THAT(driver_.Push(header, pieces),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("factor_decay is 1")));
}

TEST_F(ConfigTest, FinishedJobIsGoneAndSaysSo) {
  Start();
  ASSERT_THAT(driver_.Push(0, 0, MakeFactors(0, kLayer, 2, 3, 4)), IsOk());
  const uint64_t waiting = driver_.Ask(0, 0, {0, 1, 2, kGradient});
  ASSERT_THAT(driver_.Drop(1), IsOk());
  ASSERT_THAT(driver_.Drop(1), IsOk());  // Idempotent.
  EXPECT_NE(driver_.executor.Find(waiting), nullptr);
  EXPECT_TRUE(driver_.core.Held().empty());
  EXPECT_EQ(driver_.core.Status().predicted_bytes(), 0);
  EXPECT_EQ(driver_.core.Status().staged_bytes(), 0);
  EXPECT_THAT(Push(MakeCall(0, 0)),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("finished")));
  // A late command of the old world does not bring it back.
  ASSERT_THAT(driver_.Configure(job_), IsOk());
  EXPECT_TRUE(driver_.core.Held().empty());
  // The name may be used again.
  v1::CallHeader next = MakeCall(0, 0);
  next.set_world_version(2);
  EXPECT_THAT(Push(next),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("retry")));
  config().mutable_world()->set_version(2);
  Start();
  EXPECT_THAT(Push(next), IsOk());
}

TEST_F(ConfigTest, DropOfAnOlderWorldChangesNothing) {
  Start();
  StartWorld(2, 0);
  ASSERT_THAT(driver_.Drop(1), IsOk());
  EXPECT_EQ(driver_.core.Held().size(), 1u);
}

TEST_F(ConfigTest, ResultsOfTasksOfADroppedJobFindNobody) {
  Start();
  Effects effects;
  const auto pieces = MakeFactors(0, kLayer, 2, 3, 4);
  driver_.executor.HoldMerges(true);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_THAT(driver_.Push(rank, 0, pieces), IsOk());
    ASSERT_THAT(driver_.Commit(rank, 0), IsOk());
  }
  ASSERT_THAT(driver_.Drop(1), IsOk());
  config().mutable_world()->set_version(2);
  Start();
  driver_.executor.HoldMerges(false);
  driver_.Advance(absl::ZeroDuration());
  EXPECT_EQ(layer()->updates(), 0);
  EXPECT_EQ(driver_.counters().rounds_merged(), 0);
  EXPECT_EQ(driver_.core.Status().staged_bytes(), 0);
}

TEST_F(ConfigTest, AnotherRunUnderTheNameStartsAfresh) {
  Start();
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_THAT(driver_.Push(rank, 0, MakeFactors(0, kLayer, 2, 3, 4)), IsOk());
    ASSERT_THAT(driver_.Commit(rank, 0), IsOk());
  }
  EXPECT_EQ(layer()->updates(), 1);
  config().mutable_world()->set_run_id("another");
  config().mutable_world()->set_version(2);
  Start();
  EXPECT_EQ(layer()->updates(), 0);
}

}  // namespace
}  // namespace kronserve::server
