#include "server/round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "server/layer_rounds.h"
#include "server/step_ledger.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kA = v1::FACTOR_KIND_INPUT;
constexpr auto kG = v1::FACTOR_KIND_OUTPUT;

Contribution Data(float value, int64_t rows) {
  Contribution contribution;
  contribution.body = Contribution::Body::kData;
  contribution.rows = rows;
  contribution.sum =
      std::make_shared<const std::vector<float>>(std::vector<float>{value});
  return contribution;
}

bool Everyone(int) { return true; }

TEST(Round, ContributorIsInWhenBothKindsAre) {
  Round round(3, absl::UnixEpoch(), {1, 4});
  round.Add(1, kA, Data(1, 1));
  EXPECT_EQ(round.ReadyShare(Everyone), 0);
  round.Add(1, kG, Data(1, 1));
  EXPECT_EQ(round.ReadyShare(Everyone), 0.5);
  EXPECT_FALSE(round.IsComplete());
  round.Add(4, kA, {});
  round.Add(4, kG, {});
  EXPECT_TRUE(round.IsComplete());
  EXPECT_EQ(round.ReadyShare([](int rank) { return rank == 4; }), 0.5);
}

TEST(Round, KeepsContributorOrderWhateverTheArrivalOrder) {
  Round round(0, absl::UnixEpoch(), {0, 1, 2});
  for (int rank : {2, 0, 1}) {
    round.Add(rank, kG, Data(10.0f + rank, 1));
    round.Add(rank, kA, Data(rank, 1));
  }
  const ClosedRound closed = round.Close(CloseAs::kMerge, Everyone);
  ASSERT_EQ(closed.a.size(), 3u);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ((*closed.a[rank].sum)[0], rank);
    EXPECT_EQ((*closed.g[rank].sum)[0], 10 + rank);
  }
  EXPECT_FALSE(closed.partial);
  EXPECT_EQ(closed.counts.merged, 6);
  EXPECT_EQ(closed.staged_bytes, 24);
}

TEST(Round, CloseReleasesTensorsAndKeepsIdentities) {
  Round round(0, absl::UnixEpoch(), {0});
  round.Add(0, kA, Data(1, 1));
  EXPECT_EQ(round.Find(0, kG), nullptr);
  EXPECT_EQ(round.Find(7, kA), nullptr);
  const ClosedRound closed =
      round.Close(CloseAs::kDrop, [](int) { return false; });
  EXPECT_EQ(closed.counts.late, 1);
  ASSERT_NE(round.Find(0, kA), nullptr);
  EXPECT_EQ(round.Find(0, kA)->sum, nullptr);
}

TEST(Round, DropCountsEmptyOnesAsEmptyAndRefusedOnesNotAgain) {
  Round round(0, absl::UnixEpoch(), {0, 1});
  round.Add(0, kA, Data(1, 1));
  round.Add(0, kG, {});
  Contribution refused;
  refused.body = Contribution::Body::kRefused;
  round.Add(1, kA, refused);
  const ClosedRound closed = round.Close(CloseAs::kDrop, Everyone);
  EXPECT_EQ(closed.counts.late, 1);
  EXPECT_EQ(closed.counts.empty, 1);
  EXPECT_EQ(closed.counts.merged + closed.counts.voided, 0);
}

TEST(Round, SettingsMustAgree) {
  Round round(0, absl::UnixEpoch(), {0});
  EXPECT_THAT(round.CheckSettings(0.1, 0.9), IsOk());
  round.SetSettings(0.1, 0.9);
  EXPECT_THAT(round.CheckSettings(0.1, 0.9), IsOk());
  EXPECT_THAT(round.CheckSettings(0.2, 0.9),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("damping 0.2 disagrees with 0.1")));
  EXPECT_THAT(round.CheckSettings(0.1, 0.8),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("factor_decay 0.8 disagrees with 0.9")));
}

TEST(StepLedger, KnowsWhoCommittedWhat) {
  StepLedger ledger(2);
  EXPECT_FALSE(ledger.IsCommittedByAll(0));
  ledger.Commit(0, 0);
  ledger.Commit(0, 0);
  EXPECT_TRUE(ledger.IsCommitted(0, 0));
  EXPECT_FALSE(ledger.IsCommitted(0, 1));
  EXPECT_FALSE(ledger.IsCommittedByAll(0));
  ledger.Commit(0, 1);
  EXPECT_TRUE(ledger.IsCommittedByAll(0));
}

TEST(StepLedger, VoidStaysVoid) {
  StepLedger ledger(2);
  ledger.Commit(5, 0);
  EXPECT_EQ(ledger.VoidReason(5), nullptr);
  ledger.Void(5, 1, "overflow");
  ledger.Void(5, 0, "later");
  ledger.Commit(5, 1);
  ASSERT_NE(ledger.VoidReason(5), nullptr);
  EXPECT_EQ(*ledger.VoidReason(5), "rank 1: overflow");
}

TEST(StepLedger, ForgetsOldStepsThatNobodyNeeds) {
  StepLedger ledger(1);
  for (int step = 0; step < 10; ++step) ledger.Commit(step, 0);
  ledger.Prune(/*needed_from=*/7, /*keep=*/5);
  EXPECT_EQ(ledger.size(), 5);
  EXPECT_TRUE(ledger.IsCommitted(5, 0));
  EXPECT_FALSE(ledger.IsCommitted(4, 0));
  ledger.Prune(/*needed_from=*/6, /*keep=*/1);
  EXPECT_EQ(ledger.size(), 4);  // Steps 6 to 9 are needed.
  for (int step = 10; step < 3000; ++step) ledger.Commit(step, 0);
  ledger.Prune(/*needed_from=*/0, /*keep=*/1);
  EXPECT_EQ(ledger.size(), StepLedger::kMostSteps);
}

TEST(LayerRounds, RemembersAFewClosedRounds) {
  RoundRules rules;
  LayerRounds rounds(rules, {0}, -1);
  StepLedger ledger(1);
  for (int step = 0; step < 10; ++step) {
    Round& round = rounds.Open(step, absl::UnixEpoch());
    round.Add(0, kA, {});
    round.Add(0, kG, {});
    ledger.Commit(step, 0);
    EXPECT_EQ(rounds.Close(ledger, absl::UnixEpoch()).size(), 1u);
  }
  EXPECT_EQ(rounds.closed_through(), 9);
  EXPECT_NE(rounds.Find(6, 0, kA), nullptr);
  EXPECT_EQ(rounds.Find(5, 0, kA), nullptr);
}

TEST(LayerRounds, DeadlineRunsFromTheFirstArrivalOfTheOldestRound) {
  RoundRules rules;
  rules.partial = true;
  rules.deadline = absl::Seconds(2);
  LayerRounds rounds(rules, {0}, -1);
  EXPECT_EQ(rounds.NextDeadline(), absl::InfiniteFuture());
  const absl::Time now = absl::UnixEpoch();
  rounds.Open(0, now);
  rounds.Open(0, now + absl::Seconds(1)).Add(0, kA, {});
  EXPECT_EQ(rounds.NextDeadline(), now + absl::Seconds(2));
  const StepLedger ledger(1);
  EXPECT_TRUE(rounds.Close(ledger, now + absl::Seconds(1.9)).empty());
  EXPECT_EQ(rounds.Close(ledger, now + absl::Seconds(2)).size(), 1u);
}

TEST(LayerRounds, RestartDropsWhatIsOpenAndMayGoBack) {
  LayerRounds rounds(RoundRules{}, {0, 1}, 10);
  rounds.Open(11, absl::UnixEpoch()).Add(0, kA, Data(1, 1));
  const auto dropped = rounds.Restart({0}, 4);
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].counts.late, 1);
  EXPECT_EQ(dropped[0].staged_bytes, 4);
  EXPECT_EQ(rounds.closed_through(), 4);
  EXPECT_EQ(rounds.num_open(), 0);
  EXPECT_EQ(rounds.Find(11, 0, kA), nullptr);
  EXPECT_THAT(rounds.contributors(), ElementsAre(0));
}

}  // namespace
}  // namespace kronserve::server
