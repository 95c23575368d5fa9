// Layers that move between two servers: PROTOCOL.md 6, docs/moving_layers.md.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "server/testing/moves_fixture.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::SampleLayer;
using ::kronserve::testing::StatusIs;
using ::testing::_;
using ::testing::AllOf;
using testing::AsyncOptions;
using testing::CoreDriver;
using testing::DefaultCoreOptions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kGradient;
using testing::kLayer;
using testing::MakeFactors;
using testing::MakeJob;
using testing::MovesTest;
using testing::Place;
using ::testing::SizeIs;
using testing::SyncOptions;

constexpr absl::StatusCode kAborted = absl::StatusCode::kAborted;

// Found by the simulation: the source forgot the layer, and the new owner
// waited for it for ever.
TEST_F(MovesTest, LayerThatIsStillReadFromItsCheckpointLeavesAfterThat) {
  CoreOptions options = DefaultCoreOptions("s0");
  options.has_checkpoints = true;
  CoreDriver source(options);
  config_ = MakeJob({kLayer, SampleLayer("fc2", 1, 2)}, 1, SyncOptions());
  ASSERT_THAT(source.Configure(config_), IsOk());
  const std::vector<RestoreTask> tasks = source.executor.TakeRestores();
  ASSERT_THAT(tasks, SizeIs(2));
  Place(&config_, 0, "s1", 2, "s0");
  ASSERT_THAT(source.Configure(config_), IsOk());
  EXPECT_EQ(source.PhaseOf("fc1"), "awaited");
  EXPECT_THAT(source.core.Held()[0].leaving(), ElementsAre(0));
  source.FinishRestore(tasks[0], std::nullopt);
  EXPECT_EQ(source.PhaseOf("fc1"), "leaving");
  Step(source, 0);
  Step(source, 1);
  EXPECT_THAT(source.executor.TakeTransfers(), SizeIs(1));
}

TEST_F(MovesTest, OldOwnerAnswersTheStepsBeforeAndHandsOverAfterThem) {
  Start(1, SyncOptions());
  Step(old_, 0);
  Move(3);
  EXPECT_EQ(old_.PhaseOf("fc1"), "leaving");
  EXPECT_EQ(new_.PhaseOf("fc1"), "awaited");
  EXPECT_EQ(old_.PhaseOf("fc2"), "owned");
  EXPECT_THAT(new_.core.Held()[0].awaited(), ElementsAre(0));
  EXPECT_THAT(old_.core.Held()[0].leaving(), ElementsAre(0));
  EXPECT_EQ(ReplyTo(old_, Step(old_, 1)).version(), 2);
  EXPECT_THAT(old_.executor.TakeTransfers(), IsEmpty());

  // The answer of step 2 was given: everything before step 3 is over.
  EXPECT_EQ(ReplyTo(old_, Step(old_, 2, 6)).version(), 3);
  const TransferTask sent = Sent();
  EXPECT_EQ(sent.target.address(), "s1:1");
  EXPECT_EQ(sent.header.source(), "s0");
  EXPECT_EQ(sent.header.epoch(), 2u);
  ASSERT_THAT(new_.Receive(sent), IsOk());
  EXPECT_EQ(old_.PhaseOf("fc1"), "leaving");  // Until the answer is here.
  old_.FinishTransfer(sent, absl::OkStatus());
  EXPECT_EQ(old_.PhaseOf("fc1"), "none");
  EXPECT_EQ(new_.PhaseOf("fc1"), "owned");
  EXPECT_EQ(old_.counters().layers_handed_over(), 1);
  EXPECT_EQ(new_.counters().layers_received(), 1);
  EXPECT_EQ(old_.counters().contributions_lost(), 0);
  // 1/3 of 6 and 2/3 of 2, but decay 0.5 weighs the new one 0.5: 4.
  EXPECT_THAT(*new_.core.FindLayerState("job", 0)->averages().a,
              ElementsAre(4, 0, 4));
  // The new owner goes on where the old one ended.
  EXPECT_EQ(ReplyTo(new_, Step(new_, 3)).version(), 4);
}

TEST_F(MovesTest, OldOwnerNamesTheNewOneForStepsFromTheCut) {
  Start(1, SyncOptions());
  Step(old_, 0);
  Move(2);
  const auto push = old_.Push(0, 2, MakeFactors(0, kLayer, 1, 1, 4));
  EXPECT_THAT(push, StatusIs(kAborted, AllOf(HasSubstr("'s1'"),
                                             HasSubstr("from step 2"))));
  v1::Assignment attached;
  const auto payload = push.status().GetPayload(kAssignmentPayload);
  ASSERT_TRUE(payload.has_value());
  ASSERT_TRUE(attached.ParseFromString(std::string(*payload)));
  EXPECT_EQ(attached.epoch(), 2u);
  EXPECT_EQ(attached.owners(0).source(), "s0");
  v1::LayersElsewhere elsewhere;
  const auto listed = push.status().GetPayload(kElsewherePayload);
  ASSERT_TRUE(listed.has_value());
  ASSERT_TRUE(elsewhere.ParseFromString(std::string(*listed)));
  EXPECT_THAT(elsewhere.layers(), ElementsAre(0));
  // The call was of step 2, so steps 0 and 1 are over.
  EXPECT_THAT(old_.executor.TakeTransfers(), SizeIs(1));
}

TEST_F(MovesTest, OneWordOfTheSchedulerEndsTheStepsBefore) {
  Start(1, SyncOptions());
  Step(old_, 0);
  Move(5);
  old_.SeeProgress(4);
  EXPECT_THAT(old_.executor.TakeTransfers(), IsEmpty());
  old_.SeeProgress(5);
  EXPECT_EQ(Sent().contents.meta.closed_through(), 4);
}

TEST_F(MovesTest, CallsAreHeldUntilTheStateIsInstalled) {
  Start(1, SyncOptions());
  Step(old_, 0);
  Move(1);
  const TransferTask sent = Sent();
  const uint64_t request = Step(new_, 1, 6);
  EXPECT_EQ(new_.executor.Find(request), nullptr);
  EXPECT_EQ(new_.core.FindLayerState("job", 0)->updates(), 0);
  ASSERT_THAT(new_.Receive(sent), IsOk());
  EXPECT_EQ(ReplyTo(new_, request).outcome(), v1::LAYER_OUTCOME_PRECONDITIONED);
  EXPECT_EQ(ReplyTo(new_, request).version(), 2);
  // Averaged on top of what came: (2 + 6) / 2.
  EXPECT_THAT(*new_.core.FindLayerState("job", 0)->averages().a,
              ElementsAre(4, 0, 4));
}

TEST_F(MovesTest, HeldCallFallsBackAfterItsBudgetAndLaterOnesAtOnce) {
  v1::JobOptions options = AsyncOptions(1);
  Start(1, options);
  Step(old_, 0);
  Move(1);
  const TransferTask sent = Sent();
  const uint64_t request = Step(new_, 1);
  new_.Advance(absl::Seconds(3));
  EXPECT_EQ(ReplyTo(new_, request).reason(), v1::FALLBACK_REASON_NOT_READY);
  EXPECT_THAT(ReplyTo(new_, request).message(),
              AllOf(HasSubstr("fc1"), HasSubstr("'s0'")));
  const uint64_t next = Step(new_, 2);
  EXPECT_EQ(ReplyTo(new_, next).reason(), v1::FALLBACK_REASON_NOT_READY);
  ASSERT_THAT(new_.Receive(sent), IsOk());
  EXPECT_EQ(ReplyTo(new_, Step(new_, 3)).outcome(),
            v1::LAYER_OUTCOME_PRECONDITIONED);
  EXPECT_EQ(new_.core.FindLayerState("job", 0)->updates(), 4);
}

// A round is 16 bytes here, the layer's state 36: with all that is pushed while
// it is on its way there would be no room for it.
TEST_F(MovesTest, WhatWaitsForTheStateLeavesItRoomToCome) {
  CoreOptions options = DefaultCoreOptions("s1");
  options.staging_limit_bytes = 3 * 16 + 36;
  CoreDriver receiver(options);
  Start(1, SyncOptions());
  Step(old_, 0);
  Move(1);
  ASSERT_THAT(receiver.Configure(config_), IsOk());
  for (int step = 1; step <= 6; ++step) {
    EXPECT_EQ(Push(receiver, 0, step), v1::CONTRIBUTION_OUTCOME_ACCEPTED);
    ASSERT_THAT(receiver.Commit(0, step), IsOk());
  }
  // The newest two, as many as may be open, wait on.
  EXPECT_EQ(receiver.core.Status().staged_bytes(), 2 * 16);
  EXPECT_EQ(receiver.counters().rounds_dropped(), 4);
  EXPECT_EQ(receiver.counters().contributions_late(), 8);
  ASSERT_THAT(receiver.Receive(Sent()), IsOk());
  EXPECT_EQ(receiver.core.FindLayerState("job", 0)->updates(), 3);
  EXPECT_EQ(receiver.counters().contributions_merged(), 4);
  EXPECT_EQ(receiver.core.Status().staged_bytes(), 0);
}

TEST_F(MovesTest, LostReplyOfAPushIsADuplicateAtTheNewOwner) {
  Start(1, SyncOptions());
  Step(old_, 0);
  Move(1);
  const TransferTask sent = Sent();
  ASSERT_THAT(new_.Receive(sent), IsOk());
  old_.FinishTransfer(sent, absl::OkStatus());
  // The caller never saw the answer and repeats its push of step 0.
  EXPECT_THAT(old_.Push(0, 0, MakeFactors(0, kLayer, 2, 1, 4)),
              StatusIs(kAborted, _));
  EXPECT_EQ(Push(new_, 0, 0), v1::CONTRIBUTION_OUTCOME_DUPLICATE);
  EXPECT_EQ(new_.core.FindLayerState("job", 0)->updates(), 1);
  EXPECT_EQ(new_.counters().contributions_duplicate(), 2);
  EXPECT_EQ(new_.counters().contributions_late(), 0);
  // So is the answer of step 0: the same bytes.
  const uint64_t again = new_.Ask(0, 0, {0, 1, 2, kGradient});
  EXPECT_EQ(ReplyTo(new_, again).version(), 1);
}

TEST_F(MovesTest, RoundThatIsStillOpenIsClosedAsByItsDeadline) {
  Start(2, AsyncOptions(1));
  Push(old_, 0, 0);
  ASSERT_THAT(old_.Commit(0, 0), IsOk());
  Move(1);
  EXPECT_THAT(old_.executor.TakeTransfers(), IsEmpty());
  // Rank 1 has lost its push; step 1 has begun.
  old_.SeeProgress(1);
  const TransferTask sent = Sent();
  EXPECT_EQ(sent.contents.meta.updates(), 1);  // Half of the ranks is enough.
  EXPECT_EQ(sent.contents.meta.closed_through(), 0);
  EXPECT_EQ(old_.counters().rounds_partial(), 1);
}

TEST_F(MovesTest, RanksThatAreBehindStillEndTheirRound) {
  Start(2, AsyncOptions(1));
  Push(old_, 0, 0);
  // Rank 0 has its answer of step 0 while rank 1 still pushes.
  old_.Ask(0, 0, {0, 1, 2, kGradient});
  Move(1);
  old_.Advance(absl::Milliseconds(500));
  EXPECT_THAT(old_.executor.TakeTransfers(), IsEmpty());
  Push(old_, 1, 0, 6);
  ASSERT_THAT(old_.Commit(1, 0), IsOk());
  const TransferTask sent = Sent();
  EXPECT_EQ(old_.counters().contributions_merged(), 4);
  EXPECT_THAT(*sent.contents.averages.a, ElementsAre(4, 0, 4));
}

TEST_F(MovesTest, EndsOfLaterStepsCloseNothingOfTheNewOwner) {
  Start(1, SyncOptions());
  Step(old_, 0);
  old_.executor.HoldRefreshes(true);
  Push(old_, 0, 1);
  ASSERT_THAT(old_.Commit(0, 1), IsOk());  // Its refresh is held back.
  Move(2);
  // The old owner has other layers: steps 2 and 3 end there as well.
  ASSERT_THAT(old_.Commit(0, 2), IsOk());
  ASSERT_THAT(old_.Commit(0, 3), IsOk());
  EXPECT_THAT(old_.executor.TakeTransfers(), IsEmpty());
  old_.executor.HoldRefreshes(false);
  old_.Advance(absl::ZeroDuration());
  const TransferTask sent = Sent();
  EXPECT_EQ(sent.contents.meta.closed_through(), 1);
  EXPECT_EQ(sent.contents.meta.published().version(), 2);
  ASSERT_THAT(new_.Receive(sent), IsOk());
  EXPECT_EQ(Push(new_, 0, 2), v1::CONTRIBUTION_OUTCOME_ACCEPTED);
}

TEST_F(MovesTest, EndsOfEarlierStepsHangNoRoundOfTheNewOwner) {
  Start(2, SyncOptions());
  Move(1);
  // Ranks end step 0 everywhere; the new owner holds nothing of it.
  ASSERT_THAT(new_.Commit(0, 0), IsOk());
  ASSERT_THAT(new_.Commit(1, 0), IsOk());
  for (int rank : {0, 1}) Push(old_, rank, 0);
  for (int rank : {0, 1}) ASSERT_THAT(old_.Commit(rank, 0), IsOk());
  old_.SeeProgress(1);
  ASSERT_THAT(new_.Receive(Sent()), IsOk());
  for (int rank : {0, 1}) Push(new_, rank, 1);
  ASSERT_THAT(new_.Commit(1, 1), IsOk());
  const uint64_t request = new_.Ask(0, 1, {0, 1, 2, kGradient});
  EXPECT_EQ(ReplyTo(new_, request).version(), 2);
}

TEST_F(MovesTest, LayersGoToOneReceiverOneAfterTheOther) {
  Start(1, SyncOptions());
  Place(&config_, 0, "s1", 0, "s0");
  Place(&config_, 1, "s1", 0, "s0");
  ConfigureAll();
  const TransferTask first = Sent();
  EXPECT_EQ(first.key.layer, 0);
  old_.FinishTransfer(first, absl::OkStatus());
  EXPECT_EQ(Sent().key.layer, 1);
}

TEST_F(MovesTest, MemoryOfALeavingLayerIsFreedWithIt) {
  Start(1, SyncOptions());
  const int64_t both = old_.core.Status().predicted_bytes();
  Move(0);
  EXPECT_EQ(old_.core.Status().predicted_bytes(), both);
  EXPECT_GT(new_.core.Status().predicted_bytes(), 0);
  old_.FinishTransfer(Sent(), absl::OkStatus());
  EXPECT_LT(old_.core.Status().predicted_bytes(), both);
}

// The scheduler learns of steps with every heartbeat only; a fast job may be
// past from_step when the old owner hears of it.
TEST_F(MovesTest, StepThatHasBegunHereEndsHere) {
  Start(2, SyncOptions());
  Push(old_, 0, 3, 2);
  Move(2);
  Push(old_, 1, 3, 6);
  ASSERT_THAT(old_.Commit(0, 3), IsOk());
  ASSERT_THAT(old_.Commit(1, 3), IsOk());
  EXPECT_THAT(old_.Push(0, 4, MakeFactors(0, kLayer, 1, 1, 4)),
              StatusIs(kAborted, _));
  const TransferTask sent = Sent();
  EXPECT_EQ(sent.contents.meta.closed_through(), 3);
  ASSERT_THAT(new_.Receive(sent), IsOk());
  old_.FinishTransfer(sent, absl::OkStatus());
  EXPECT_EQ(old_.counters().contributions_merged(), 4);
  EXPECT_EQ(old_.counters().contributions_lost(), 0);
  EXPECT_EQ(Push(new_, 1, 3), v1::CONTRIBUTION_OUTCOME_DUPLICATE);
  EXPECT_EQ(Push(new_, 0, 4), v1::CONTRIBUTION_OUTCOME_ACCEPTED);
}

TEST_F(MovesTest, CallsByTheNewAssignmentProlongNothing) {
  Start(1, SyncOptions());
  Step(old_, 0);
  v1::PreconditionHeader end = CoreDriver::MakeEnd(0, 4);
  end.mutable_call()->set_epoch(2);  // The rank has heard of the move.
  ASSERT_THAT(old_.End(end), IsOk());
  Move(4);
  EXPECT_THAT(old_.Push(0, 4, MakeFactors(0, kLayer, 1, 1, 4)),
              StatusIs(kAborted, _));
}

// Found by the simulation: rank 1's were counted twice.
TEST_F(MovesTest, RoundThatBothOwnersClosedIsCountedOnce) {
  Start(2, AsyncOptions(3));
  Push(old_, 0, 1);  // Step 1 has begun here, so it ends here.
  Move(1);
  Push(new_, 0, 1);
  Push(new_, 1, 1);
  ASSERT_THAT(new_.Commit(0, 1), IsOk());
  new_.Advance(absl::Seconds(1));  // Half is enough; rank 1 did not commit.
  EXPECT_EQ(new_.counters().contributions_late(), 2);
  ASSERT_THAT(old_.Commit(0, 2), IsOk());
  ASSERT_THAT(new_.Receive(Sent()), IsOk());
  EXPECT_EQ(new_.counters().contributions_late(), 4);
  EXPECT_EQ(new_.counters().contributions_merged(), 0);
}

TEST_F(MovesTest, RegistrationTellsAllThatIsKnown) {
  Start(1, SyncOptions());
  Step(old_, 0);
  const auto held = old_.core.Held(/*with_config=*/true);
  ASSERT_THAT(held, SizeIs(1));
  EXPECT_EQ(held[0].config().layers_size(), 2);
  EXPECT_EQ(held[0].newest_step(), 0);
  EXPECT_FALSE(old_.core.Held()[0].has_config());
  EXPECT_FALSE(new_.core.Held()[0].has_newest_step());
}

}  // namespace
}  // namespace kronserve::server
