// Several ranks: whatever happens to one of them, all write the same bytes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "common/checksum.h"
#include "common/testing/status_matchers.h"
#include "worker/session.h"
#include "worker/testing/fake_job.h"
#include "worker/testing/ranks.h"

namespace kronserve::worker {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::kronserve::worker::testing::CorruptingCommunicator;
using ::kronserve::worker::testing::FakeJob;
using ::kronserve::worker::testing::Recorder;
using ::kronserve::worker::testing::RunRanks;
using ::testing::_;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;

std::vector<curvature::LayerShape> FourLayers() {
  return {{"l0", 1, 2, false},
          {"l1", 1, 2, false},
          {"l2", 1, 2, false},
          {"l3", 1, 2, false}};
}

// One rank's gradients, equal on all ranks.
struct Gradients {
  std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<linalg::MatrixView<float>> views() {
    std::vector<linalg::MatrixView<float>> views;
    for (int64_t layer = 0; layer < 4; ++layer) {
      views.push_back({values.data() + 2 * layer, 1, 2});
    }
    return views;
  }
  uint64_t Hash() const {
    return Checksum(values.data(), values.size() * sizeof(float));
  }
};

// What every rank saw of one step.
struct Seen {
  explicit Seen(int ranks) : hashes(ranks), results(ranks) {}
  std::vector<uint64_t> hashes;
  std::vector<StepResult> results;
};

// Runs `steps` steps with equal gradients on every rank.
std::vector<Seen> RunSteps(
    FakeJob& job, int ranks, int steps,
    const std::function<StepSettings(int, int)>& settings_of = nullptr) {
  std::vector<Seen> seen(steps, Seen(ranks));
  RunRanks(ranks, [&](int rank) {
    auto session = job.Join(rank);
    ASSERT_THAT(session, IsOk());
    for (int step = 0; step < steps; ++step) {
      const StepSettings settings =
          settings_of != nullptr ? settings_of(rank, step) : StepSettings();
      Gradients gradients;
      auto result = (*session)->Step(step, settings, gradients.views());
      ASSERT_THAT(result, IsOk());
      seen[step].hashes[rank] = gradients.Hash();
      seen[step].results[rank] = *std::move(result);
    }
  });
  return seen;
}

// V = 2 D, so that a fallback shows in the bytes.
client::CallEnd Doubled(const client::PreconditionCall& call,
                        std::vector<client::LayerAnswer>* answers) {
  for (int item = 0; item < call.header.items_size(); ++item) {
    std::vector<float> v = *call.tensors[item];
    double sum = 0;
    for (float& value : v) {
      sum += 2 * double{value} * value;
      value *= 2;
    }
    answers->push_back(client::testing::MakeAnswer(
        item, call.header.items(item).layer(), std::move(v)));
    answers->back().reply.set_inner_product(sum);
  }
  return {};
}

TEST(SessionAgreement, AReplyLostForOneRankIsAFallbackForAll) {
  FakeJob job(FourLayers(), {"n0", "n1", "n1"});
  job.servers().precondition = &Doubled;
  job.faults().drop_reply = [](int64_t step, int layer) {
    return step == 1 && layer == 2;
  };
  const auto steps = RunSteps(job, 3, 3);
  for (const Seen& seen : steps) {
    EXPECT_THAT(seen.hashes, Each(seen.hashes[0]));
  }
  for (const StepResult& result : steps[1].results) {
    EXPECT_EQ(result.fallbacks, 1);
    ASSERT_THAT(result.layers, SizeIs(4));
    EXPECT_FALSE(result.layers[2].preconditioned);
    EXPECT_EQ(result.layers[2].reason, v1::FALLBACK_REASON_UNREACHABLE);
    EXPECT_EQ(result.nu, steps[1].results[0].nu);
  }
  EXPECT_EQ(steps[2].results[1].fallbacks, 0);
}

TEST(SessionAgreement, LostServerIsOneBudgetAndThenAtOnce) {
  FakeJob job(FourLayers(), {"n0", "n0", "n0"});
  job.job_options().set_step_budget_ms(200);
  job.job_options().set_round_deadline_ms(100);
  job.servers().precondition = &Doubled;
  job.faults().black_hole = [](const std::string& server, int64_t step) {
    return server == "b" && step >= 1;
  };
  const auto steps = RunSteps(job, 3, 3);
  for (const Seen& seen : steps) {
    EXPECT_THAT(seen.hashes, Each(seen.hashes[0]));
  }
  EXPECT_EQ(steps[0].results[0].fallbacks, 0);
  EXPECT_EQ(steps[1].results[0].fallbacks, 2);
  EXPECT_GE(steps[1].results[0].waited, absl::Milliseconds(150));
  EXPECT_EQ(steps[2].results[0].fallbacks, 2);
}

TEST(SessionAgreement, ValuesThatDifferOnOneRankFallBackOnAll) {
  FakeJob job(FourLayers(), {"n0", "n1", "n1"});
  job.servers().precondition = &Doubled;
  std::vector<uint64_t> hashes(3);
  RunRanks(3, [&](int rank) {
    const CommunicatorFactory plain = job.hub().Factory();
    const CommunicatorFactory corrupting = [&](const GroupSpec& spec,
                                               Rendezvous* rendezvous)
        -> absl::StatusOr<std::unique_ptr<Communicator>> {
      auto group = plain(spec, rendezvous);
      if (!group.ok()) return group;
      return std::make_unique<CorruptingCommunicator>(*std::move(group));
    };
    auto session = job.Join(rank, rank == 2 ? corrupting : plain);
    ASSERT_THAT(session, IsOk());
    Gradients gradients;
    auto result = (*session)->Step(0, StepSettings(), gradients.views());
    ASSERT_THAT(result, IsOk());
    hashes[rank] = gradients.Hash();
    // The last layer of every other rank's broadcast changed on rank 2.
    EXPECT_GE(result->fallbacks, 1);
    for (const LayerReport& layer : result->layers) {
      if (layer.preconditioned) continue;
      EXPECT_EQ(layer.reason, v1::FALLBACK_REASON_DISAGREED);
    }
  });
  EXPECT_THAT(hashes, Each(hashes[0]));
}

TEST(SessionAgreement, OneRanksVoidVoidsTheStepForAll) {
  FakeJob job(FourLayers(), {"n0", "n0"});
  job.servers().precondition = &Doubled;
  const auto steps = RunSteps(job, 2, 2, [](int rank, int step) {
    StepSettings settings;
    if (rank == 1 && step == 0) settings.void_reason = "overflow";
    return settings;
  });
  for (const StepResult& result : steps[0].results) {
    EXPECT_TRUE(result.voided);
    EXPECT_EQ(result.fallbacks, 4);
    for (const LayerReport& layer : result.layers) {
      EXPECT_EQ(layer.reason, v1::FALLBACK_REASON_VOID);
    }
  }
  EXPECT_THAT(steps[0].hashes, Each(Gradients().Hash())) << "not untouched";
  EXPECT_EQ(steps[1].results[0].fallbacks, 0);
}

TEST(SessionAgreement, AnEpochIsUsedOnceEveryRankHoldsIt) {
  FakeJob job(FourLayers(), {"n0", "n0"});
  RunRanks(2, [&](int rank) {
    auto session = job.Join(rank);
    ASSERT_THAT(session, IsOk());
    const auto take_step = [&](int64_t step) {
      Gradients gradients;
      auto result = (*session)->Step(step, StepSettings(), gradients.views());
      EXPECT_THAT(result, IsOk());
      return result.ok() ? result->epoch : 0;
    };
    const auto hold_epoch_2 = [&] {
      client::testing::FakeScheduler& scheduler = job.scheduler(rank);
      scheduler.set_assignment(job.Assignment(2));
      // The beat that reports epoch 2 shows that it is held.
      const size_t seen = scheduler.heartbeats().size();
      ASSERT_TRUE(scheduler.WaitForHeartbeats(seen + 3, absl::Seconds(10)));
      ASSERT_EQ(scheduler.heartbeats().back().epoch(), 2u);
    };
    EXPECT_EQ(take_step(0), 1u);
    if (rank == 0) hold_epoch_2();
    EXPECT_EQ(take_step(1), 1u);
    EXPECT_EQ(take_step(2), 1u) << "rank 1 does not hold it";
    if (rank == 1) hold_epoch_2();
    EXPECT_EQ(take_step(3), 1u) << "agreed in this step, used in the next";
    EXPECT_EQ(take_step(4), 2u);
  });
}

TEST(SessionAgreement, ANodesRanksPushOneSum) {
  FakeJob job({{"fc", 1, 1, false}}, {"n0", "n0", "n1"});
  Recorder recorder;
  job.servers() = recorder.Servers();
  RunRanks(3, [&](int rank) {
    auto session = job.Join(rank);
    ASSERT_THAT(session, IsOk());
    EXPECT_TRUE((*session)->NeedsStatistics(0, 0));
    const std::vector<float> inputs(1, static_cast<float>(rank + 1));
    const float hook = 1;
    ASSERT_THAT((*session)->AccumulateLinear(0, {inputs.data(), 1, 1},
                                             {&hook, 1, 1}, 1),
                IsOk());
    float gradient = 1;
    ASSERT_THAT((*session)->Step(0, StepSettings(), {{&gradient, 1, 1}}),
                IsOk());
  });
  // Node n0: 1 + 4 over 2 rows, by its delegate; node n1: 9 over 1 row.
  std::vector<float> sums(3, 0.0f);
  const auto pushes = recorder.pushes();
  ASSERT_THAT(pushes, SizeIs(2));
  for (const client::PushCall& push : pushes) {
    sums[push.header.call().rank()] = (*push.tensors[0])[0];
    EXPECT_EQ(push.header.items(0).loss_rows(),
              push.header.call().rank() == 2 ? 1 : 2);
  }
  EXPECT_THAT(sums, ElementsAre(5, 0, 9));
  // Every rank's commit reached the owner; one brought the gradient.
  EXPECT_THAT(recorder.ends(), SizeIs(3));
  int gradients = 0;
  for (const auto& end : recorder.ends()) gradients += end.header.items_size();
  EXPECT_EQ(gradients, 1);
}

TEST(SessionAgreement, OneRankSourceNeedsTheDelegateOnly) {
  FakeJob job({{"fc", 1, 1, false}}, {"n0", "n0"});
  job.job_options().set_factor_source(v1::FACTOR_SOURCE_ONE_RANK);
  Recorder recorder;
  job.servers() = recorder.Servers();
  std::atomic<int> needing{0};
  RunRanks(2, [&](int rank) {
    auto session = job.Join(rank);
    ASSERT_THAT(session, IsOk());
    if ((*session)->NeedsStatistics(0, 0)) ++needing;
    float gradient = 1;
    ASSERT_THAT((*session)->Step(0, StepSettings(), {{&gradient, 1, 1}}),
                IsOk());
  });
  EXPECT_EQ(needing, 1);
  EXPECT_THAT(recorder.pushes(), SizeIs(1));
}

TEST(SessionAgreement, ARankThatLeavesBreaksTheJobForTheOthers) {
  FakeJob job(FourLayers(), {"n0", "n1"});
  RunRanks(2, [&](int rank) {
    auto session = job.Join(rank);
    ASSERT_THAT(session, IsOk());
    if (rank == 1) return;
    Gradients gradients;
    EXPECT_THAT((*session)->Step(0, StepSettings(), gradients.views()),
                StatusIs(absl::StatusCode::kUnavailable, _));
    EXPECT_EQ(gradients.Hash(), Gradients().Hash()) << "written all the same";
    EXPECT_THAT((*session)->Step(0, StepSettings(), gradients.views()),
                StatusIs(absl::StatusCode::kUnavailable, _));
  });
}

}  // namespace
}  // namespace kronserve::worker
