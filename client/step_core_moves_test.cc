// Layers move, servers are lost and come back, while a step is under way.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "client/step_core.h"
#include "client/testing/messages.h"
#include "client/testing/step_core_fixture.h"

namespace kronserve::client {
namespace {

using ::kronserve::client::testing::Ended;
using ::kronserve::client::testing::kBudget;
using ::kronserve::client::testing::kNoResults;
using ::kronserve::client::testing::MakeAnswer;
using ::kronserve::client::testing::MakeAssignment;
using ::kronserve::client::testing::Moved;
using ::kronserve::client::testing::StepCoreFixture;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class StepCoreMovesTest : public StepCoreFixture {};

TEST_F(StepCoreMovesTest, AbortedWithNewerOwnerGoesThereWithinTheStep) {
  Assign(1, {{"a"}, {"a"}});
  StepCore core = Core(Request(10, {0, 1}, /*factor_step=*/true));
  StepEffects effects = core.Begin(now_);
  effects = core.OnPushDone(effects.pushes[0].id,
                            Moved(MakeAssignment(2, 1, {{"b", 10}, {"a", 0}})),
                            kNoResults, now_);

  ASSERT_THAT(effects.pushes, SizeIs(2));
  EXPECT_EQ(effects.pushes[0].call.target.server, "a");
  EXPECT_EQ(effects.pushes[0].call.header.items(0).layer(), 1);
  EXPECT_EQ(effects.pushes[1].call.target.server, "b");
  EXPECT_EQ(effects.pushes[1].call.header.items(0).layer(), 0);
  EXPECT_EQ(effects.pushes[1].call.header.call().epoch(), 2u);
  EXPECT_EQ(routing_.held_epoch(), 2u);
  EXPECT_EQ(routing_.active_epoch(), 1u) << "used before it was agreed";
}

TEST_F(StepCoreMovesTest, AbortedAtTheEndTakesTheMovedFactorsAlong) {
  Assign(1, {{"a"}, {"a"}});
  StepCore core = Core(Request(10, {0, 1}, /*factor_step=*/true));
  StepEffects effects = core.Begin(now_);
  effects = core.OnPushDone(effects.pushes[0].id, {}, kNoResults, now_);
  effects = core.OnPreconditionDone(
      effects.preconditions[0].id,
      Moved(MakeAssignment(2, 1, {{"b", 10}, {"a", 0}})), now_);
  // Layer 1 stays: its factors are at "a". Layer 0's are pushed again to "b".
  ASSERT_THAT(effects.preconditions, SizeIs(1));
  EXPECT_EQ(effects.preconditions[0].call.target.server, "a");
  ASSERT_THAT(effects.pushes, SizeIs(1));
  EXPECT_EQ(effects.pushes[0].call.target.server, "b");
  EXPECT_THAT(effects.pushes[0].call.header.items(), SizeIs(1));
}

TEST_F(StepCoreMovesTest, AbortedCommitReachesTheNewOwnerToo) {
  Assign(1, {{"a"}, {"a"}});
  StepCore core = Core(Request(10, {}, /*factor_step=*/true));
  StepEffects effects = core.Begin(now_);
  effects = core.OnPreconditionDone(
      effects.preconditions[0].id,
      Moved(MakeAssignment(2, 1, {{"b", 10}, {"a", 0}})), now_);
  ASSERT_THAT(effects.preconditions, SizeIs(2));
  EXPECT_EQ(effects.preconditions[0].call.target.server, "a");
  EXPECT_EQ(effects.preconditions[1].call.target.server, "b");
}

TEST_F(StepCoreMovesTest, AbortedWithALaterFromStepFallsBack) {
  Assign(1, {{"a"}, {"a"}});
  StepCore core = Core(Request(11, {0}, /*factor_step=*/false));
  StepEffects effects = core.Begin(now_);
  const auto newer = Moved(MakeAssignment(2, 1, {{"b", 50}, {"a", 0}}));
  effects = core.OnPreconditionDone(effects.preconditions[0].id, newer, now_);
  // "a" still answers step 11, as epoch 2 says: asked once more.
  ASSERT_THAT(effects.preconditions, SizeIs(1));
  EXPECT_EQ(effects.preconditions[0].call.target.server, "a");
  EXPECT_EQ(effects.preconditions[0].call.header.call().epoch(), 2u);
  effects = core.OnPreconditionDone(effects.preconditions[0].id, newer, now_);
  // It has nothing more to say; "b" has, if the state came from "a".
  ASSERT_THAT(effects.preconditions, SizeIs(1));
  EXPECT_EQ(effects.preconditions[0].call.target.server, "b");
  core.OnPreconditionDone(effects.preconditions[0].id, newer, now_);
  ASSERT_TRUE(core.done());
  EXPECT_EQ(core.TakeAnswer().layers[0].reply.reason(),
            v1::FALLBACK_REASON_UNREACHABLE);
  EXPECT_FALSE(suspects_.Contains("a")) << "it answered";
  EXPECT_FALSE(suspects_.Contains("b")) << "it answered";
}

TEST_F(StepCoreMovesTest, AbortedWithoutAnythingNewerFallsBack) {
  Assign(1, {{"a"}, {"a"}});
  StepCore core = Core(Request(11, {0}, /*factor_step=*/false));
  const StepEffects effects = core.Begin(now_);
  core.OnPreconditionDone(effects.preconditions[0].id,
                          Ended(absl::AbortedError("world 1 is old")), now_);
  ASSERT_TRUE(core.done());
  EXPECT_THAT(core.TakeAnswer().layers[0].reply.message(),
              HasSubstr("world 1 is old"));
}

TEST_F(StepCoreMovesTest, NewAssignmentEndsTheWaitForALostServer) {
  Assign(1, {{"a"}, {"a"}});
  StepCore core = Core(Request(11, {0, 1}, /*factor_step=*/false));
  StepEffects effects = core.Begin(now_);
  core.OnPreconditionDone(effects.preconditions[0].id,
                          Ended(absl::UnavailableError("refused")), now_);
  Assign(2, {{"b", 0}, {"b", 50}});
  effects = core.OnAssignment(now_);
  ASSERT_THAT(effects.preconditions, SizeIs(1));
  EXPECT_EQ(effects.preconditions[0].call.target.server, "b");
  ASSERT_THAT(effects.preconditions[0].call.header.items(), SizeIs(1));
  core.OnLayer(effects.preconditions[0].id, MakeAnswer(0, 0, {5, 6}), now_);
  core.OnPreconditionDone(effects.preconditions[0].id, {}, now_);
  ASSERT_TRUE(core.done());
  const StepAnswer answer = core.TakeAnswer();
  EXPECT_EQ(answer.layers[0].reply.outcome(), v1::LAYER_OUTCOME_PRECONDITIONED);
  EXPECT_THAT(answer.layers[1].reply.message(), HasSubstr("server 'b' owns"));
}

TEST_F(StepCoreMovesTest, SourceOfAMovingLayerIsAskedForTheStepsBefore) {
  // All this rank knows: "b" takes over from "a" at step 50.
  Assign(2, {{"b", 50, "a"}, {"b", 0}});
  StepCore before = Core(Request(49, {0}, /*factor_step=*/false));
  StepEffects effects = before.Begin(now_);
  ASSERT_THAT(effects.preconditions, SizeIs(1));
  EXPECT_EQ(effects.preconditions[0].call.target.server, "a");
  EXPECT_EQ(effects.preconditions[0].call.target.address, "a:1");

  StepCore from = Core(Request(50, {0}, /*factor_step=*/false));
  effects = from.Begin(now_);
  ASSERT_THAT(effects.preconditions, SizeIs(1));
  EXPECT_EQ(effects.preconditions[0].call.target.server, "b");
}

// Step 49 is merged at "a", its answers are lost, and the state of layer 0 has
// moved to "b" when the rank asks again: the same contribution goes to "b",
// which knows it as a duplicate.
TEST_F(StepCoreMovesTest, PushWhoseReplyWasLostIsRepeatedAtTheNewOwner) {
  Assign(1, {{"a"}, {"a"}});
  StepCore core = Core(Request(49, {0}, /*factor_step=*/true));
  StepEffects effects = core.Begin(now_);
  ASSERT_THAT(effects.pushes, SizeIs(1));
  const v1::PushFactorsHeader first = effects.pushes[0].call.header;
  core.OnPushDone(effects.pushes[0].id,
                  Ended(absl::UnavailableError("connection reset")), kNoResults,
                  now_);
  now_ = core.next_wake();
  effects = core.Tick(now_);
  ASSERT_THAT(effects.pushes, SizeIs(1));

  const auto moved = Moved(MakeAssignment(2, 1, {{"b", 50, "a"}, {"a", 0}}));
  effects = core.OnPushDone(effects.pushes[0].id, moved, kNoResults, now_);
  ASSERT_THAT(effects.pushes, SizeIs(1));
  EXPECT_EQ(effects.pushes[0].call.target.server, "a") << "the source first";
  effects = core.OnPushDone(effects.pushes[0].id, moved, kNoResults, now_);
  ASSERT_THAT(effects.pushes, SizeIs(1));
  EXPECT_EQ(effects.pushes[0].call.target.server, "b");
  // "a" has refused the commit with the rest, and still owns layer 1.
  ASSERT_THAT(effects.preconditions, SizeIs(1));
  EXPECT_EQ(effects.preconditions[0].call.target.server, "a");
  EXPECT_THAT(effects.preconditions[0].call.header.items(), IsEmpty());
  core.OnPreconditionDone(effects.preconditions[0].id, {}, now_);
  // The identity: nothing but the fence has changed.
  v1::PushFactorsHeader again = effects.pushes[0].call.header;
  EXPECT_EQ(again.call().epoch(), 2u);
  again.mutable_call()->set_epoch(1);
  EXPECT_EQ(again.SerializeAsString(), first.SerializeAsString());

  v1::PushFactorsResponse duplicate;
  duplicate.add_results()->set_outcome(v1::CONTRIBUTION_OUTCOME_DUPLICATE);
  effects = core.OnPushDone(effects.pushes[0].id, {}, duplicate, now_);
  ASSERT_THAT(effects.preconditions, SizeIs(1));
  EXPECT_EQ(effects.preconditions[0].call.target.server, "b");
  core.OnLayer(effects.preconditions[0].id, MakeAnswer(0, 0, {5, 6}), now_);
  core.OnPreconditionDone(effects.preconditions[0].id, {}, now_);
  ASSERT_TRUE(core.done());
  const StepAnswer answer = core.TakeAnswer();
  EXPECT_EQ(answer.layers[0].reply.outcome(), v1::LAYER_OUTCOME_PRECONDITIONED);
  EXPECT_THAT(answer.refused, IsEmpty());
  EXPECT_FALSE(suspects_.Contains("a"));
  EXPECT_FALSE(suspects_.Contains("b"));
}

// One at a time: layer 0 is at "b" already, layer 1 still at "a".
TEST_F(StepCoreMovesTest, OnlyTheLayerThatWasHandedOverGoesToItsNewOwner) {
  Assign(2, {{"b", 50, "a"}, {"b", 50, "a"}});
  StepCore core = Core(Request(11, {0, 1}, /*factor_step=*/true));
  StepEffects effects = core.Begin(now_);
  ASSERT_THAT(effects.pushes, SizeIs(1));
  effects = core.OnPushDone(
      effects.pushes[0].id,
      Moved(MakeAssignment(2, 1, {{"b", 50, "a"}, {"b", 50, "a"}}), {-1, 0, 2}),
      kNoResults, now_);
  ASSERT_THAT(effects.pushes, SizeIs(2));
  EXPECT_EQ(effects.pushes[0].call.target.server, "a");
  ASSERT_THAT(effects.pushes[0].call.header.items(), SizeIs(1));
  EXPECT_EQ(effects.pushes[0].call.header.items(0).layer(), 1);
  EXPECT_EQ(effects.pushes[1].call.target.server, "b");
  ASSERT_THAT(effects.pushes[1].call.header.items(), SizeIs(1));
  EXPECT_EQ(effects.pushes[1].call.header.items(0).layer(), 0);
}

TEST_F(StepCoreMovesTest, AwaitedLayerIsAskedForAgainUntilItsStateHasCome) {
  Assign(2, {{"b", 50, "a"}, {"b", 50, "a"}});
  StepCore core = Core(Request(50, {0}, /*factor_step=*/false));
  StepEffects effects = core.Begin(now_);
  const absl::Time begin = now_;
  while (now_ < begin + absl::Seconds(1)) {
    ASSERT_THAT(effects.preconditions, SizeIs(1));
    EXPECT_EQ(effects.preconditions[0].call.target.server, "b");
    core.OnPreconditionDone(
        effects.preconditions[0].id,
        Ended(absl::UnavailableError("layer 0 is awaited from 'a'")), now_);
    now_ = core.next_wake();
    effects = core.Tick(now_);
  }
  core.OnLayer(effects.preconditions[0].id, MakeAnswer(0, 0, {5, 6}), now_);
  core.OnPreconditionDone(effects.preconditions[0].id, {}, now_);
  ASSERT_TRUE(core.done());
  EXPECT_EQ(core.TakeAnswer().layers[0].reply.outcome(),
            v1::LAYER_OUTCOME_PRECONDITIONED);
  EXPECT_FALSE(suspects_.Contains("b"));
}

TEST_F(StepCoreMovesTest, MovingLayerWaitsForItsBusySource) {
  Assign(1, {{"a"}, {"a"}});
  StepCore core = Core(Request(11, {0}, /*factor_step=*/false));
  StepEffects effects = core.Begin(now_);
  core.OnPreconditionDone(effects.preconditions[0].id,
                          Ended(absl::ResourceExhaustedError("full")), now_);
  Assign(2, {{"b", 50, "a"}, {"b", 50, "a"}});
  effects = core.OnAssignment(now_);
  ASSERT_THAT(effects.preconditions, SizeIs(1)) << "the source lives";
  EXPECT_EQ(effects.preconditions[0].call.target.server, "a");
}

TEST_F(StepCoreMovesTest, ServerRestartedInTimeIsReachedAtItsNewAddress) {
  Assign(1, {{"a"}, {"a"}});
  StepCore core = Core(Request(11, {0}, /*factor_step=*/false));
  StepEffects effects = core.Begin(now_);
  core.OnPreconditionDone(effects.preconditions[0].id,
                          Ended(absl::UnavailableError("refused")), now_);
  v1::Assignment restored = MakeAssignment(2, 1, {{"a", 11}, {"a", 11}});
  for (v1::ServerAddress& server : *restored.mutable_servers()) {
    server.set_address("a:2");
  }
  ASSERT_TRUE(*routing_.Adopt(restored));
  effects = core.OnAssignment(now_);
  ASSERT_THAT(effects.preconditions, SizeIs(1));
  EXPECT_EQ(effects.preconditions[0].call.target.address, "a:2");
  core.OnLayer(effects.preconditions[0].id, MakeAnswer(0, 0, {5, 6}), now_);
  core.OnPreconditionDone(effects.preconditions[0].id, {}, now_);
  ASSERT_TRUE(core.done());
  EXPECT_EQ(core.TakeAnswer().layers[0].reply.outcome(),
            v1::LAYER_OUTCOME_PRECONDITIONED);
  EXPECT_FALSE(suspects_.Contains("a"));
}

// Layer 0 is placed anew from step 12; until then its lost owner is asked,
// which came back as a new process and knows nothing.
TEST_F(StepCoreMovesTest, AReplacedOwnerThatAsksForPatienceIsNotAskedAgain) {
  Assign(1, {{"a"}, {"b"}});
  Assign(2, {{"b", 12}, {"b"}});
  routing_.Activate(2);
  StepCore core = Core(Request(11, {0}, /*factor_step=*/true));
  const StepEffects effects = core.Begin(now_);
  ASSERT_THAT(effects.pushes, SizeIs(1));
  ASSERT_THAT(effects.preconditions, SizeIs(1));  // b's commit.
  core.OnPushDone(effects.pushes[0].id,
                  Ended(absl::UnavailableError("job is not known yet")),
                  kNoResults, now_);
  EXPECT_FALSE(suspects_.Contains("a"));
  core.OnPreconditionDone(effects.preconditions[0].id, {}, now_);
  ASSERT_TRUE(core.done());
  const StepAnswer answer = core.TakeAnswer();
  EXPECT_EQ(answer.layers[0].reply.reason(), v1::FALLBACK_REASON_UNREACHABLE);
  EXPECT_THAT(answer.layers[0].reply.message(), HasSubstr("not known yet"));
  EXPECT_THAT(answer.refused, ElementsAre(HasSubstr("server 'a'")));
}

TEST_F(StepCoreMovesTest, LateRerouteMakesNobodyASuspect) {
  uint64_t epoch = 0;
  // 0.6 of the budget is left for "b", more than half: it is to blame.
  for (const auto& [spent, blamed] :
       {std::pair(0.4, true), std::pair(0.6, false), std::pair(0.99, false)}) {
    suspects_ = Suspects();
    Assign(++epoch, {{"a"}, {"a"}});
    routing_.Activate(epoch);
    StepCore core = Core(Request(11, {0}, /*factor_step=*/false));
    const StepEffects effects = core.Begin(now_);
    ASSERT_THAT(effects.preconditions, SizeIs(1));
    core.OnPreconditionDone(
        effects.preconditions[0].id,
        Moved(MakeAssignment(++epoch, 1, {{"b", 0}, {"b", 0}})),
        now_ + spent * kBudget);
    now_ += kBudget;
    core.Tick(now_);
    ASSERT_TRUE(core.done());
    EXPECT_EQ(core.TakeAnswer().layers[0].reply.outcome(),
              v1::LAYER_OUTCOME_FALLBACK);
    EXPECT_EQ(suspects_.Contains("b"), blamed) << spent;
    EXPECT_FALSE(suspects_.Contains("a"));
  }
}

// It asks again for the same layers, at the same server.
TEST_F(StepCoreMovesTest, LateAssignmentExcusesNobodyWhoWasAskedBefore) {
  Assign(1, {{"a"}, {"b"}});
  StepCore core = Core(Request(11, {0}, /*factor_step=*/false));
  const StepEffects effects = core.Begin(now_);
  core.OnPreconditionDone(effects.preconditions[0].id,
                          Ended(absl::UnavailableError("refused")), now_);
  now_ += 0.6 * kBudget;
  Assign(2, {{"a"}, {"c", 13}});
  const StepEffects again = core.OnAssignment(now_);
  ASSERT_THAT(again.preconditions, SizeIs(1));
  EXPECT_EQ(again.preconditions[0].call.header.call().epoch(), 2u);
  now_ += kBudget;
  core.Tick(now_);
  ASSERT_TRUE(core.done());
  EXPECT_TRUE(suspects_.Contains("a"));
}

TEST_F(StepCoreMovesTest, NewAssignmentLeavesCallsOnTheirWayAlone) {
  Assign(1, {{"a"}, {"a"}});
  StepCore core = Core(Request(11, {0}, /*factor_step=*/false));
  core.Begin(now_);
  Assign(2, {{"b"}, {"b"}});
  EXPECT_THAT(core.OnAssignment(now_).preconditions, IsEmpty());
  EXPECT_FALSE(core.done());
}

}  // namespace
}  // namespace kronserve::client
