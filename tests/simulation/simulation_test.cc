// The simulation itself: its clock, its network, its oracle, and that a seed is
// one run. The seeds are run by kronserve-simulate.

#include "tests/simulation/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/job_group.h"
#include "tests/simulation/layer_oracle.h"
#include "tests/simulation/network.h"
#include "tests/simulation/random.h"

namespace kronserve::simulation {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ProcessPtr Named(const std::string& name) {
  return std::make_shared<Process>(name);
}

TEST(EventQueue, RunsInOrderOfTimeThenOfAdding) {
  EventQueue queue;
  std::vector<int> ran;
  queue.After(absl::Seconds(2), nullptr, [&] { ran.push_back(3); });
  queue.After(absl::Seconds(1), nullptr, [&] { ran.push_back(1); });
  queue.After(absl::Seconds(1), nullptr, [&] { ran.push_back(2); });
  const absl::Time end = queue.now() + absl::Seconds(3);
  while (queue.RunOne(end)) {
  }
  EXPECT_THAT(ran, ElementsAre(1, 2, 3));
  EXPECT_EQ(queue.now(), end);
}

TEST(EventQueue, FrozenProcessCatchesUpAndADeadOneDoesNot) {
  EventQueue queue;
  const ProcessPtr frozen = Named("a");
  const ProcessPtr dead = Named("b");
  std::vector<std::string> ran;
  for (const ProcessPtr& process : {frozen, dead}) {
    queue.After(absl::Seconds(1), process,
                [&ran, process] { ran.push_back(process->name()); });
  }
  queue.Freeze(frozen.get());
  queue.Kill(dead.get());
  while (queue.RunOne(queue.now() + absl::Seconds(2))) {
  }
  EXPECT_THAT(ran, IsEmpty());
  queue.Thaw(frozen);
  while (queue.RunOne(queue.now())) {
  }
  EXPECT_THAT(ran, ElementsAre("a"));
}

class NetworkTest : public ::testing::Test {
 protected:
  // One call of a to b; how it ended.
  std::string CallB() {
    std::string end = "nothing";
    network_.Begin(
        a_, "b", absl::Seconds(1),
        [&](Endpoint*, const CallPtr& call) {
          ++arrived_;
          network_.End(call, [&end] { end = "answered"; });
        },
        [&end](const absl::Status& status) {
          end = absl::StatusCodeToString(status.code());
        });
    while (queue_.RunOne(queue_.now() + absl::Seconds(2))) {
    }
    return end;
  }

  EventQueue queue_;
  Random random_{1};
  Network network_{&queue_, &random_};
  const ProcessPtr a_ = Named("a");
  Endpoint b_{Named("b")};
  int arrived_ = 0;
};

TEST_F(NetworkTest, CarriesACallAndItsAnswer) {
  network_.Listen("b", &b_);
  EXPECT_EQ(CallB(), "answered");
  NetworkWeather weather;
  weather.repeated = 1;
  network_.SetWeather(weather);
  EXPECT_EQ(CallB(), "answered");
  EXPECT_EQ(arrived_, 3);  // The second came twice.
}

TEST_F(NetworkTest, NobodyThereIsUnavailableAndACutIsSilence) {
  EXPECT_EQ(CallB(), "UNAVAILABLE");
  network_.Listen("b", &b_);
  network_.Cut("a", "b");
  EXPECT_EQ(CallB(), "DEADLINE_EXCEEDED");
  EXPECT_EQ(arrived_, 0);
  network_.HealAll();
  network_.Cut("b", "*");
  EXPECT_EQ(CallB(), "DEADLINE_EXCEEDED");
  EXPECT_EQ(arrived_, 1);
}

TEST_F(NetworkTest, LostMachineIsSilentAndADeadProcessIsNot) {
  network_.Listen("b", &b_);
  network_.Kill(b_.process(), /*machine_too=*/true);
  EXPECT_EQ(CallB(), "DEADLINE_EXCEEDED");
  Endpoint next(Named("b"));
  network_.Listen("b", &next);
  EXPECT_EQ(CallB(), "answered");
  network_.Kill(next.process(), /*machine_too=*/false);
  EXPECT_EQ(CallB(), "UNAVAILABLE");
}

// Decay 0.75, warm: weights 1 and 1/2; sums divided by all rows.
TEST(LayerOracle, AveragesByHand) {
  LayerOracle oracle;
  const std::vector<float> one = {2}, three = {6}, two = {8};
  oracle.Merge(v1::FACTOR_INIT_WARM, 0.75, {{{&one, 1}, {&three, 3}}, 1},
               {{{&one, 1}}, 2});
  EXPECT_THAT(oracle.Difference({2}, {4}), IsEmpty());
  oracle.Merge(v1::FACTOR_INIT_WARM, 0.75, {{{&two, 2}}, 1}, {{{&one, 1}}, 2});
  EXPECT_THAT(oracle.Difference({3}, {4}), IsEmpty());
  EXPECT_THAT(oracle.Difference({3.001f}, {4}), HasSubstr("A[0]"));
  EXPECT_THAT(oracle.Difference({3}, {4, 4}), HasSubstr("2 entries"));
}

TEST(ReplayCommunicator, SecondTimeEverybodyHasTheRootsData) {
  ReplayCommunicator::Board board;
  int values[2] = {0, 7};
  for (int round = 0; round < 2; ++round) {
    for (int rank = 0; rank < 2; ++rank) {
      ReplayCommunicator group(&board, rank, 2);
      int value = rank == 1 ? 7 : -1;
      ASSERT_TRUE(group.Broadcast(&value, sizeof(value), 1).ok());
      values[rank] = value;
    }
    EXPECT_EQ(values[0], round == 0 ? 0 : 7);
  }
}

// Whoever prints a seed can run it again, and watching changes nothing.
TEST(Simulation, OneSeedIsOneRun) {
  RunOptions watched;
  watched.keep_lines = 100000;
  const RunResult first = RunSeed(7, watched);
  const RunResult second = RunSeed(7, watched);
  EXPECT_EQ(first.trace, second.trace);
  EXPECT_GT(first.trace.size(), 100u);
  EXPECT_EQ(RunSeed(7).events, first.events);
  EXPECT_NE(RunSeed(8).events, first.events);
}

// It is no use that nothing breaks where nothing happens.
TEST(Simulation, AFewSeedsSeeEverything) {
  RunResult sum;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const RunResult result = RunSeed(seed);
    EXPECT_EQ(result.failure, "") << "seed " << seed;
    sum.merged += result.merged;
    sum.preconditioned += result.preconditioned;
    sum.fallbacks += result.fallbacks;
    sum.handed_over += result.handed_over;
    sum.restored += result.restored;
  }
  EXPECT_GT(sum.merged, 10000);
  EXPECT_GT(sum.preconditioned, 10000);
  EXPECT_GT(sum.fallbacks, 1000);
  EXPECT_GT(sum.handed_over, 20);
  EXPECT_GT(sum.restored, 10);
}

}  // namespace
}  // namespace kronserve::simulation
