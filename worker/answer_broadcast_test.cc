#include "worker/answer_broadcast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "client/testing/messages.h"
#include "common/checksum.h"
#include "common/testing/status_matchers.h"
#include "linalg/backend.h"
#include "worker/testing/ranks.h"

namespace kronserve::worker {
namespace {

using ::kronserve::client::testing::MakeAnswer;
using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::kronserve::worker::testing::CorruptingCommunicator;
using ::kronserve::worker::testing::RunGroup;
using ::kronserve::worker::testing::RunRanks;
using ::testing::_;
using ::testing::HasSubstr;

const std::vector<curvature::LayerShape> kLayers = {
    {"a", 1, 2, false}, {"b", 1, 3, false}, {"c", 1, 2, false}};
// Rank 1 has layers 0 and 2, rank 0 layer 1.
const std::vector<int> kDelegates = {1, 0, 1};

linalg::LinearAlgebra<float> Tools() {
  return *linalg::CreateLinearAlgebra<float>(linalg::Device::kReference);
}

client::LayerAnswer Fallback(v1::FallbackReason reason) {
  client::LayerAnswer answer;
  answer.reply.set_outcome(v1::LAYER_OUTCOME_FALLBACK);
  answer.reply.set_reason(reason);
  answer.reply.set_message("late");
  return answer;
}

// The answers that `rank` got from servers.
std::vector<client::LayerAnswer> Own(int rank) {
  std::vector<client::LayerAnswer> own(3);
  if (rank == 0) {
    own[1] = MakeAnswer(0, 1, {3, 4, 5});
    own[1].reply.set_version(8);
    own[1].reply.set_age(2);
    own[1].reply.set_inner_product(0.25);
  }
  if (rank == 1) {
    own[0] = MakeAnswer(0, 0, {1, 2});
    own[2] = Fallback(v1::FALLBACK_REASON_NOT_READY);
  }
  return own;
}

TEST(AnswerBroadcast, EveryRankHoldsEveryDelegatesAnswers) {
  RunGroup(3, [](Communicator& group) {
    const auto tools = Tools();
    AnswerBroadcast broadcast(kLayers, kDelegates, group.rank());
    const auto own = Own(group.rank());
    std::vector<HeldAnswer> held;
    ASSERT_THAT(broadcast.Run(group, *tools.kernels, own, &held), IsOk());
    ASSERT_EQ(held.size(), 3u);
    ASSERT_TRUE(held[0].preconditioned);
    EXPECT_EQ(held[0].values[1], 2);
    ASSERT_TRUE(held[1].preconditioned);
    EXPECT_EQ(held[1].values[2], 5);
    EXPECT_EQ(held[1].version, 8);
    EXPECT_EQ(held[1].age, 2);
    EXPECT_EQ(held[1].inner_product, 0.25);
    EXPECT_EQ(held[1].rung, v1::REFRESH_RUNG_DIRECT);
    EXPECT_EQ(held[1].damping, 0.03);
    const float expected[] = {3, 4, 5};
    EXPECT_EQ(held[1].checksum, Checksum(expected, sizeof(expected)));
    EXPECT_FALSE(held[2].preconditioned);
    EXPECT_EQ(held[2].reason, v1::FALLBACK_REASON_NOT_READY);
    EXPECT_EQ(held[2].message, group.rank() == 1 ? "late" : "");
  });
}

TEST(AnswerBroadcast, ValuesThatChangedOnTheWayAreNotPreconditionedHere) {
  LoopbackHub hub;
  RunRanks(3, [&hub](int rank) {
    GroupSpec spec;
    spec.name = "test";
    spec.rank = rank;
    spec.size = 3;
    KRONSERVE_ASSERT_OK_AND_ASSIGN(std::unique_ptr<Communicator> group,
                                   hub.Factory()(spec, nullptr));
    if (rank == 2) {
      group = std::make_unique<CorruptingCommunicator>(std::move(group));
    }
    const auto tools = Tools();
    AnswerBroadcast broadcast(kLayers, kDelegates, rank);
    const auto own = Own(rank);
    std::vector<HeldAnswer> held;
    ASSERT_THAT(broadcast.Run(*group, *tools.kernels, own, &held), IsOk());
    // The last bytes of rank 0's broadcast are layer 1's values.
    EXPECT_EQ(held[1].preconditioned, rank != 2);
    if (rank != 2) return;
    EXPECT_EQ(held[1].reason, v1::FALLBACK_REASON_DISAGREED);
    EXPECT_THAT(held[1].message, HasSubstr("on its way to rank 2"));
  });
}

TEST(AnswerBroadcast, AloneItUsesItsOwnAnswers) {
  RunGroup(1, [](Communicator& group) {
    const auto tools = Tools();
    AnswerBroadcast broadcast({kLayers[0]}, {0}, 0);
    const std::vector<client::LayerAnswer> own = {MakeAnswer(0, 0, {1, 2})};
    std::vector<HeldAnswer> held;
    ASSERT_THAT(broadcast.Run(group, *tools.kernels, own, &held), IsOk());
    ASSERT_TRUE(held[0].preconditioned);
    EXPECT_EQ(held[0].values, own[0].values->data()) << "copied for nothing";
  });
}

TEST(AnswerBroadcast, NonFiniteAnswersBecomeFallbacks) {
  RunGroup(1, [](Communicator& group) {
    const auto tools = Tools();
    AnswerBroadcast broadcast({kLayers[0], kLayers[2]}, {0, 0}, 0);
    std::vector<client::LayerAnswer> own = {
        MakeAnswer(0, 0, {1, std::numeric_limits<float>::infinity()}),
        MakeAnswer(1, 1, {1, 2})};
    own[1].reply.set_inner_product(std::numeric_limits<double>::quiet_NaN());
    std::vector<HeldAnswer> held;
    ASSERT_THAT(broadcast.Run(group, *tools.kernels, own, &held), IsOk());
    for (const HeldAnswer& answer : held) {
      EXPECT_FALSE(answer.preconditioned);
      EXPECT_EQ(answer.reason, v1::FALLBACK_REASON_BAD_RESULT);
    }
  });
}

TEST(AnswerBroadcast, BrokenGroupIsAnError) {
  RunGroup(2, [](Communicator& group) {
    const auto tools = Tools();
    AnswerBroadcast broadcast(kLayers, kDelegates, group.rank());
    group.Abort();
    std::vector<HeldAnswer> held;
    EXPECT_THAT(broadcast.Run(group, *tools.kernels, Own(group.rank()), &held),
                StatusIs(absl::StatusCode::kUnavailable, _));
  });
}

}  // namespace
}  // namespace kronserve::worker
