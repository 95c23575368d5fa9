// A job whose number of ranks changes while it runs, on real servers and a real
// scheduler in one process.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "common/status_macros.h"
#include "common/testing/status_matchers.h"
#include "tests/mini_cluster.h"
#include "worker/collective/loopback/factory.h"
#include "worker/session_options.h"

namespace kronserve {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::HasSubstr;
using worker::Session;
using worker::SessionOptions;

constexpr int kSide = 3;
constexpr size_t kEntries = size_t{kSide} * kSide;
constexpr int64_t kStepsOfWorld = 3;

// One world of the job: its sessions, by rank.
class World {
 public:
  World(const MiniCluster& cluster, int ranks, int64_t restart_count)
      : sessions_(ranks) {
    Each([&](int rank) {
      SessionOptions options;
      options.scheduler = cluster.scheduler_address();
      options.job = "job";
      options.rank = rank;
      options.world_size = ranks;
      options.restart_count = restart_count;
      options.next_step = restart_count * kStepsOfWorld;
      options.node = rank < 2 ? "n0" : "n1";
      options.device = "cpu";
      options.join_timeout = absl::Seconds(30);
      options.job_options = worker::SynchronousJobOptions();
      options.job_options.set_factor_update_steps(1);
      options.job_options.set_inv_update_steps(1);
      auto session = Session::Join(
          options, {{"one", kSide, kSide, false}, {"two", kSide, kSide, false}},
          hub_.Factory());
      ASSERT_THAT(session.status(), IsOk());
      sessions_[rank] = *std::move(session);
    });
  }

  // One step of `rank`, whose statistics are A = G = I, whoever it is; V of
  // layer "one" for a gradient of ones.
  absl::StatusOr<std::vector<float>> Step(int rank, int64_t step) {
    // Three rows sqrt(3) e_i: their sum is 3 I, over 3 rows.
    std::vector<float> rows(kEntries, 0);
    for (int i = 0; i < kSide; ++i) rows[i * kSide + i] = std::sqrt(3.0f);
    const linalg::ConstMatrixView<float> view(rows.data(), kSide, kSide);
    std::vector<float> one(kEntries, 1);
    std::vector<float> two(kEntries, 1);
    Session& session = *sessions_[rank];
    for (const int layer : {0, 1}) {
      if (!session.NeedsStatistics(step, layer)) continue;
      KRONSERVE_RETURN_IF_ERROR(
          session.AccumulateLinear(layer, view, view, kSide));
    }
    worker::StepSettings settings;
    settings.kl_clip.reset();
    KRONSERVE_ASSIGN_OR_RETURN(
        const worker::StepResult result,
        session.Step(step, settings,
                     {{one.data(), kSide, kSide}, {two.data(), kSide, kSide}}));
    if (result.fallbacks > 0) return absl::InternalError("a layer fell back");
    return one;
  }

  template <typename Body>
  void Each(const Body& body) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < sessions_.size(); ++rank) {
      threads.emplace_back([&body, rank] { body(static_cast<int>(rank)); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  Session& session(int rank) { return *sessions_[rank]; }

 private:
  worker::LoopbackHub hub_;
  std::vector<std::unique_ptr<Session>> sessions_;
};

// What rank 0 is told, at the latest with its next heartbeats.
absl::Status StepUntilReplaced(World& world, int64_t step) {
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  absl::Status status;
  do {
    status = world.Step(0, step).status();
  } while (!absl::StrContains(status.message(), "was replaced") &&
           absl::Now() < deadline);
  return status;
}

// One step of every rank: V of each.
std::vector<std::vector<float>> StepAll(World& world, int ranks, int64_t step) {
  std::vector<std::vector<float>> seen(ranks);
  world.Each([&](int rank) {
    const auto v = world.Step(rank, step);
    ASSERT_THAT(v.status(), IsOk()) << "step " << step << " rank " << rank;
    seen[rank] = *v;
  });
  return seen;
}

// A divisor of another world would be off by a quarter and more.
void ExpectSame(const std::vector<float>& v, const std::vector<float>& expected,
                int64_t step) {
  for (size_t i = 0; i < v.size(); ++i) {
    EXPECT_NEAR(v[i], expected[i], 1e-6 * std::abs(expected[i]))
        << "step " << step;
  }
}

TEST(ElasticWorlds, AveragesDoNotDependOnHowManyRanksThereAre) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto cluster, MiniCluster::Start({}));
  std::vector<std::unique_ptr<World>> worlds;
  std::vector<float> first;
  for (const int ranks : {4, 3, 5}) {
    const int64_t restart = static_cast<int64_t>(worlds.size());
    worlds.push_back(std::make_unique<World>(*cluster, ranks, restart));
    World& world = *worlds.back();
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
    EXPECT_EQ(world.session(0).job_group().size(), ranks);
    EXPECT_EQ(world.session(0).restart_count(), restart);
    const int64_t start = restart * kStepsOfWorld;
    EXPECT_EQ(world.session(0).start_step(), start);
    for (int64_t step = start; step < start + kStepsOfWorld; ++step) {
      const auto seen = StepAll(world, ranks, step);
      ASSERT_FALSE(::testing::Test::HasFailure());
      if (first.empty()) first = seen[0];
      for (const auto& v : seen) ExpectSame(v, first, step);
    }
  }
  // Whoever is left of an old world is told and disturbs nobody. Another rank
  // that hears it first ends the wait; the scheduler's reason follows.
  const absl::Status lost = StepUntilReplaced(*worlds[1], 2 * kStepsOfWorld);
  EXPECT_THAT(lost, StatusIs(absl::StatusCode::kUnavailable,
                             HasSubstr("was replaced")));
  std::vector<absl::Status> results(5);
  worlds[2]->Each([&](int rank) {
    results[rank] = worlds[2]->Step(rank, 3 * kStepsOfWorld).status();
  });
  for (const absl::Status& result : results) EXPECT_THAT(result, IsOk());
  EXPECT_THAT(worlds[2]->session(0).Finish(), IsOk());
}

}  // namespace
}  // namespace kronserve
