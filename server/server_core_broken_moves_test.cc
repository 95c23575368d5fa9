// Moves in which somebody dies, repeats himself or comes too late: PROTOCOL.md
// 6, docs/moving_layers.md.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "server/testing/moves_fixture.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::_;
using ::testing::AllOf;
using ::testing::Contains;
using testing::CoreDriver;
using testing::DefaultCoreOptions;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kGradient;
using testing::MakeTensor;
using testing::MovesTest;
using testing::Place;
using testing::SyncOptions;

constexpr absl::StatusCode kAborted = absl::StatusCode::kAborted;

TEST_F(MovesTest, RepeatedTransferChangesNothing) {
  Start(1, SyncOptions());
  Step(old_, 0);
  Move(1);
  const TransferTask sent = Sent();
  ASSERT_THAT(new_.Receive(sent), IsOk());
  Step(new_, 1);
  ASSERT_THAT(new_.Receive(sent), IsOk());
  EXPECT_EQ(new_.core.FindLayerState("job", 0)->updates(), 2);
  EXPECT_EQ(new_.counters().layers_received(), 1);
  EXPECT_EQ(new_.core.Status().staged_bytes(), 0);
}

TEST_F(MovesTest, RepeatedTransferOfSizesThatNoLayerHasIsRefused) {
  Start(1, SyncOptions());
  Step(old_, 0);
  Move(1);
  const TransferTask sent = Sent();
  ASSERT_THAT(new_.Receive(sent), IsOk());
  v1::TransferLayerHeader again = sent.header;
  *again.mutable_snapshot() = PackLayer(sent.contents).meta;
  again.mutable_snapshot()->mutable_tensors(0)->set_elements(int64_t{1} << 62);
  Effects effects;
  EXPECT_THAT(new_.core.BeginTransfer(again, &effects),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("fc1")));
}

TEST_F(MovesTest, FailedTransferIsTriedAgainLater) {
  Start(1, SyncOptions());
  Step(old_, 0);
  Move(1);
  const TransferTask first = Sent();
  old_.FinishTransfer(first, absl::UnavailableError("no route"));
  EXPECT_EQ(old_.PhaseOf("fc1"), "leaving");
  EXPECT_THAT(old_.executor.TakeTransfers(), IsEmpty());
  EXPECT_EQ(old_.core.NextDeadline(), old_.now + absl::Milliseconds(50));
  EXPECT_THAT(old_.executor.warnings(),
              Contains(AllOf(HasSubstr("fc1"), HasSubstr("no route"))));
  old_.Advance(absl::Milliseconds(50));
  const TransferTask second = Sent();
  EXPECT_NE(second.attempt, first.attempt);
  old_.FinishTransfer(second, absl::UnavailableError("no route"));
  EXPECT_EQ(old_.core.NextDeadline(), old_.now + absl::Milliseconds(100));
}

TEST_F(MovesTest, ReceiverDeadAnotherTakesOver) {
  Start(1, SyncOptions());
  Step(old_, 0);
  Move(1);
  const TransferTask lost = Sent();
  Place(&config_, 0, "s2", 4, "s0");
  ConfigureAll();
  EXPECT_EQ(old_.PhaseOf("fc1"), "leaving");
  EXPECT_EQ(new_.PhaseOf("fc1"), "none");
  // The old owner answers up to the new cut.
  EXPECT_EQ(ReplyTo(old_, Step(old_, 1)).version(), 2);
  // A late OK of the first receiver frees nothing.
  old_.FinishTransfer(lost, absl::OkStatus());
  EXPECT_EQ(old_.PhaseOf("fc1"), "leaving");
  old_.SeeProgress(4);
  const TransferTask sent = Sent();
  EXPECT_EQ(sent.target.name(), "s2");
  ASSERT_THAT(third_.Receive(sent), IsOk());
  EXPECT_EQ(third_.core.FindLayerState("job", 0)->updates(), 2);
  // And the first receiver refuses what was sent to it.
  EXPECT_THAT(new_.Receive(lost), StatusIs(kAborted, _));
}

TEST_F(MovesTest, ReceiverDeadTheSourceGoesOn) {
  Start(1, SyncOptions());
  Step(old_, 0);
  Move(1);
  const TransferTask lost = Sent();
  Place(&config_, 0, "s0", 2);
  ConfigureAll();
  EXPECT_EQ(old_.PhaseOf("fc1"), "owned");
  old_.FinishTransfer(lost, absl::OkStatus());
  EXPECT_EQ(old_.PhaseOf("fc1"), "owned");
  EXPECT_EQ(ReplyTo(old_, Step(old_, 2)).version(), 2);
}

// What was sent to the old process may take seconds to fail.
TEST_F(MovesTest, ReceiverIsANewProcessAndIsNotKeptWaiting) {
  Start(1, SyncOptions());
  Step(old_, 0);
  Move(1);
  const TransferTask lost = Sent();
  Place(&config_, 0, "s0", 1);
  ASSERT_THAT(old_.Configure(config_), IsOk());
  Place(&config_, 0, "s1", 2, "s0");
  config_.mutable_config()
      ->mutable_assignment()
      ->mutable_servers(1)
      ->set_incarnation(lost.target.incarnation() + 1);
  ASSERT_THAT(old_.Configure(config_), IsOk());
  Step(old_, 1);
  const TransferTask sent = Sent();
  EXPECT_EQ(sent.target.incarnation(), lost.target.incarnation() + 1);
  EXPECT_EQ(sent.contents.meta.updates(), 2);
  old_.FinishTransfer(lost, absl::DeadlineExceededError("no answer"));
  EXPECT_EQ(old_.PhaseOf("fc1"), "leaving");
  old_.FinishTransfer(sent, absl::OkStatus());
  EXPECT_EQ(old_.PhaseOf("fc1"), "none");
}

TEST_F(MovesTest, SourceDeadTheReceiverBeginsAnew) {
  Start(1, SyncOptions());
  Step(old_, 0);
  Move(1);
  EXPECT_EQ(Push(new_, 0, 1), v1::CONTRIBUTION_OUTCOME_ACCEPTED);
  const uint64_t waiting = new_.Ask(0, 1, {0, 1, 2, kGradient});
  const TransferTask sent = Sent();
  Place(&config_, 0, "s1", 3);
  ASSERT_THAT(new_.Configure(config_), IsOk());
  EXPECT_EQ(ReplyTo(new_, waiting).reason(), v1::FALLBACK_REASON_NOT_READY);
  EXPECT_EQ(new_.PhaseOf("fc1"), "owned");
  // What was staged for the old placement is lost, and said so.
  EXPECT_EQ(new_.counters().contributions_lost(), 2);
  const auto held = new_.core.Held();
  ASSERT_EQ(held[0].recoveries_size(), 1);
  EXPECT_EQ(held[0].recoveries(0).source(), v1::RECOVERY_SOURCE_FACTORS);
  EXPECT_EQ(held[0].recoveries(0).restored_through(), -1);
  EXPECT_EQ(held[0].recoveries(0).from_step(), 3);
  EXPECT_THAT(held[0].recoveries(0).message(),
              HasSubstr("no checkpoint directory"));
  // The dead source's transfer comes after all: too late.
  EXPECT_THAT(new_.Receive(sent), StatusIs(kAborted, _));
  EXPECT_EQ(ReplyTo(new_, Step(new_, 3)).version(), 1);
}

TEST_F(MovesTest, LateTransferOfAnOlderMoveIsRefused) {
  Start(1, SyncOptions());
  Step(old_, 0);
  Move(1);
  const TransferTask late = Sent();
  Place(&config_, 0, "s0", 1);
  ConfigureAll();
  Step(old_, 1, 6);
  Move(3);
  // The same sender, the same receiver, an older epoch.
  EXPECT_THAT(new_.Receive(late), StatusIs(kAborted, HasSubstr("epoch 2")));
  EXPECT_EQ(new_.PhaseOf("fc1"), "awaited");
  old_.SeeProgress(3);
  // The receiver is free for the next one when the first attempt has ended.
  EXPECT_THAT(old_.executor.TakeTransfers(), IsEmpty());
  old_.FinishTransfer(late, absl::AbortedError("not awaited"));
  ASSERT_THAT(new_.Receive(Sent()), IsOk());
  EXPECT_EQ(new_.core.FindLayerState("job", 0)->updates(), 2);
}

TEST_F(MovesTest, TransferThatDoesNotFitIsRefusedAndChangesNothing) {
  Start(1, SyncOptions());
  Step(old_, 0);
  Move(1);
  const TransferTask good = Sent();
  const auto is_invalid = StatusIs(absl::StatusCode::kInvalidArgument, _);

  TransferTask bad = good;
  bad.header.set_epoch(9);
  EXPECT_THAT(new_.Receive(bad), StatusIs(absl::StatusCode::kUnavailable, _));
  bad = good;
  bad.header.set_job("other");
  EXPECT_THAT(new_.Receive(bad), StatusIs(absl::StatusCode::kUnavailable, _));
  bad = good;
  bad.header.set_source("s2");
  EXPECT_THAT(new_.Receive(bad), StatusIs(kAborted, _));
  bad = good;
  bad.header.set_incarnation(1);  // The sender has started anew since.
  EXPECT_THAT(new_.Receive(bad), StatusIs(kAborted, _));
  bad = good;
  bad.header.clear_source();
  EXPECT_THAT(new_.Receive(bad), is_invalid);
  bad = good;
  bad.contents.meta.set_layer_index(7);
  EXPECT_THAT(new_.Receive(bad), is_invalid);
  bad = good;
  bad.contents.meta.set_closed_through(-1);
  bad.contents.meta.clear_closed();
  EXPECT_THAT(new_.Receive(bad), is_invalid);
  bad = good;
  bad.contents.meta.mutable_layer()->set_d_in(3);
  EXPECT_THAT(new_.Receive(bad), is_invalid);
  bad = good;
  bad.contents.averages.a = MakeTensor({1, 2, std::nanf("")});
  EXPECT_THAT(new_.Receive(bad), is_invalid);

  EXPECT_EQ(new_.PhaseOf("fc1"), "awaited");
  EXPECT_EQ(new_.core.Status().staged_bytes(), 0);
  EXPECT_THAT(new_.Receive(good), IsOk());
}

TEST_F(MovesTest, TransferOfAFinishedJobIsNotFound) {
  Start(1, SyncOptions());
  Step(old_, 0);
  Move(1);
  const TransferTask sent = Sent();
  ASSERT_THAT(new_.Drop(1), IsOk());
  EXPECT_THAT(new_.Receive(sent), StatusIs(absl::StatusCode::kNotFound, _));
}

TEST_F(MovesTest, TransferWaitsForStagingMemory) {
  CoreOptions options = DefaultCoreOptions("s1");
  options.staging_limit_bytes = 8;
  CoreDriver small(options);
  Start(1, SyncOptions());
  Step(old_, 0);
  Move(1);
  ASSERT_THAT(small.Configure(config_), IsOk());
  // Averages 3 + 1, factorisations 4 + 1 floats: 36 bytes.
  EXPECT_THAT(small.Receive(Sent()),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("36")));
  EXPECT_EQ(small.PhaseOf("fc1"), "awaited");
}

TEST_F(MovesTest, ContributionsOfALayerThatIsTakenAwayAreLostAndCounted) {
  Start(2, SyncOptions());
  Push(old_, 0, 0);
  Place(&config_, 0, "s1", 1);  // This server is thought dead.
  ASSERT_THAT(old_.Configure(config_), IsOk());
  EXPECT_EQ(old_.PhaseOf("fc1"), "none");
  EXPECT_EQ(old_.counters().contributions_lost(), 2);
  EXPECT_EQ(old_.core.Status().staged_bytes(), 0);
  EXPECT_THAT(
      old_.executor.warnings(),
      Contains(AllOf(HasSubstr("2 contributions are lost"), HasSubstr("fc1"))));
}

TEST_F(MovesTest, NewWorldSendsTheLayerAnew) {
  Start(1, SyncOptions());
  Step(old_, 0);
  Move(1);
  const TransferTask before = Sent();
  config_.mutable_config()->mutable_world()->set_version(2);
  config_.mutable_config()->mutable_world()->set_start_step(1);
  Place(&config_, 0, "s1", 1, "s0");
  ConfigureAll();
  EXPECT_THAT(new_.Receive(before), StatusIs(kAborted, _));
  old_.FinishTransfer(before, absl::AbortedError("world 1 is over"));
  const TransferTask after = Sent();
  EXPECT_EQ(after.header.world_version(), 2);
  ASSERT_THAT(new_.Receive(after), IsOk());
  EXPECT_EQ(new_.core.FindLayerState("job", 0)->updates(), 1);
}

// Found by the simulation: the source closed the first step of the new world,
// which was the new owner's, because it had seen that step in the old one.
TEST_F(MovesTest, StepsOfTheOldWorldProlongNothingInTheNewOne) {
  Start(1, SyncOptions());
  for (int step = 0; step < 5; ++step) Step(old_, step);
  config_.mutable_config()->mutable_world()->set_version(2);
  config_.mutable_config()->mutable_world()->set_start_step(2);
  Move(2);
  EXPECT_EQ(Sent().contents.meta.closed_through(), 1);
}

// As above, with the move begun in the old world: there it ended after step 4.
TEST_F(MovesTest, MoveThatTheNewWorldRepeatsEndsWhereThatWorldSays) {
  Start(1, SyncOptions());
  for (int step = 0; step < 5; ++step) Step(old_, step);
  Move(2);
  const TransferTask before = Sent();
  EXPECT_EQ(before.contents.meta.closed_through(), 4);
  old_.FinishTransfer(before, absl::UnavailableError("no route"));
  config_.mutable_config()->mutable_world()->set_version(2);
  config_.mutable_config()->mutable_world()->set_start_step(2);
  Move(2);
  EXPECT_EQ(Sent().contents.meta.closed_through(), 1);
}

}  // namespace
}  // namespace kronserve::server
