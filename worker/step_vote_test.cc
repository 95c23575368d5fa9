#include "worker/step_vote.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "common/testing/status_matchers.h"
#include "worker/testing/ranks.h"

namespace kronserve::worker {
namespace {

using ::kronserve::testing::StatusIs;
using ::kronserve::worker::testing::RunGroup;
using ::testing::_;
using ::testing::ElementsAre;

LayerBallot Good(int64_t version, uint64_t checksum) {
  return {true, version, checksum, false};
}

StepBallot Ballot(std::vector<LayerBallot> layers, uint64_t epoch = 1) {
  StepBallot ballot;
  ballot.layers = std::move(layers);
  ballot.epoch_held = epoch;
  return ballot;
}

// What an all-reduce over ranks with these ballots brings.
StepDecision Decide(const std::vector<StepBallot>& ballots) {
  std::vector<int64_t> minimum = EncodeBallot(ballots[0]);
  for (const StepBallot& ballot : ballots) {
    const std::vector<int64_t> words = EncodeBallot(ballot);
    for (size_t i = 0; i < words.size(); ++i) {
      minimum[i] = std::min(minimum[i], words[i]);
    }
  }
  return DecideStep(minimum);
}

TEST(StepVote, EncodesCommitEpochAndSixWordsPerLayer) {
  EXPECT_THAT(EncodeBallot(Ballot({Good(4, 7)}, 3)),
              ElementsAre(1, 3, 1, 4, -5, 7, -8, 1));
}

TEST(StepVote, EqualAnswersAreApplied) {
  const auto decision = Decide({Ballot({Good(4, 7), Good(1, 9)}),
                                Ballot({Good(4, 7), Good(1, 9)}),
                                Ballot({Good(4, 7), Good(1, 9)})});
  EXPECT_THAT(decision.preconditioned, ElementsAre(true, true));
  EXPECT_FALSE(decision.voided);
}

TEST(StepVote, OneFallbackIsOneForAllInThatLayerOnly) {
  const auto decision = Decide(
      {Ballot({Good(4, 7), Good(1, 9)}), Ballot({LayerBallot(), Good(1, 9)})});
  EXPECT_THAT(decision.preconditioned, ElementsAre(false, true));
}

TEST(StepVote, DifferentVersionsFallBack) {
  EXPECT_THAT(
      Decide({Ballot({Good(4, 7)}), Ballot({Good(5, 7)})}).preconditioned,
      ElementsAre(false));
}

TEST(StepVote, DifferentChecksumsFallBackWhateverTheirSign) {
  constexpr uint64_t kTop = uint64_t{1} << 63;
  constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();
  for (const uint64_t other : {uint64_t{0}, uint64_t{8}, kTop, kAll}) {
    EXPECT_THAT(
        Decide({Ballot({Good(4, 7)}), Ballot({Good(4, other)})}).preconditioned,
        ElementsAre(false))
        << other;
  }
  for (const uint64_t same : {uint64_t{0}, kTop, kTop - 1, kAll}) {
    EXPECT_THAT(Decide({Ballot({Good(4, same)}), Ballot({Good(4, same)})})
                    .preconditioned,
                ElementsAre(true))
        << same;
  }
}

TEST(StepVote, OneVoidVoidsTheStep) {
  StepBallot voided = Ballot({LayerBallot()});
  voided.voided = true;
  const auto decision = Decide({Ballot({Good(4, 7)}), voided});
  EXPECT_TRUE(decision.voided);
  EXPECT_THAT(decision.preconditioned, ElementsAre(false));
}

TEST(StepVote, AnOwnerThatOneRankCannotHearIsSilentForAll) {
  LayerBallot silent;
  silent.owner_silent = true;
  const auto decision =
      Decide({Ballot({Good(4, 7), Good(1, 9)}), Ballot({Good(4, 7), silent})});
  EXPECT_THAT(decision.owner_silent, ElementsAre(false, true));
  EXPECT_THAT(decision.preconditioned, ElementsAre(true, false));
}

TEST(StepVote, AgreesOnTheLowestEpochHeld) {
  EXPECT_EQ(Decide({Ballot({}, 7), Ballot({}, 5), Ballot({}, 6)}).epoch, 5u);
}

TEST(StepVote, RunsOverAGroup) {
  std::vector<StepDecision> decisions(3);
  RunGroup(3, [&](Communicator& group) {
    const bool odd = group.rank() == 1;
    auto decision = VoteStep(
        group, Ballot({Good(4, 7), Good(2, odd ? 1 : 2)}, 10 + group.rank()));
    ASSERT_TRUE(decision.ok()) << decision.status();
    decisions[group.rank()] = *decision;
  });
  for (const StepDecision& decision : decisions) {
    EXPECT_THAT(decision.preconditioned, ElementsAre(true, false));
    EXPECT_EQ(decision.epoch, 10u);
  }
}

TEST(StepVote, BrokenGroupIsAnError) {
  RunGroup(2, [](Communicator& group) {
    group.Abort();
    EXPECT_THAT(VoteStep(group, Ballot({})),
                StatusIs(absl::StatusCode::kUnavailable, _));
  });
}

}  // namespace
}  // namespace kronserve::worker
