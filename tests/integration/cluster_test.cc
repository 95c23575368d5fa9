// Whole jobs on real servers and a real scheduler in one process: faults of
// single parts, and calls that must be refused.

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/testing/faulty_transport.h"
#include "common/checksum.h"
#include "common/grpc_channel.h"
#include "common/grpc_status.h"
#include "common/testing/status_matchers.h"
#include "kronserve/v1/scheduler.grpc.pb.h"
#include "tests/mini_cluster.h"
#include "worker/session_options.h"

namespace kronserve {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using worker::Session;
using worker::StepResult;
using worker::StepSettings;

// Four layers, so that two servers and three ranks each have some.
std::vector<curvature::LayerShape> Layers() {
  return {{"first", 6, 5, true},
          {"second", 5, 7, true},
          {"third", 4, 6, false},
          {"last", 3, 5, true}};
}

JobSpec Job(int ranks, const v1::JobOptions& options) {
  JobSpec job;
  job.ranks = ranks;
  job.layers = Layers();
  job.options = options;
  return job;
}

// Synchronous, with a factor round and a refresh at every step.
v1::JobOptions EveryStep() {
  v1::JobOptions options = worker::SynchronousJobOptions();
  options.set_factor_update_steps(1);
  options.set_inv_update_steps(1);
  return options;
}

// Numbers that differ by rank, step and layer, and are dense enough for every
// factor to be well conditioned.
linalg::Matrix<float> Numbers(int64_t rows, int64_t cols, uint64_t seed) {
  linalg::Matrix<float> matrix(rows, cols);
  uint64_t state = seed * 2654435761u + 12345;
  for (float& value : matrix.values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<float>(state >> 40) / (1 << 23) - 1;
  }
  return matrix;
}

// Trains with made-up statistics and gradients; what it saw of every step.
class Trainer {
 public:
  Trainer(int rank, Session& session) : rank_(rank), session_(session) {}

  absl::Status Step(int64_t step, const StepSettings& settings = {}) {
    const auto layers = Layers();
    std::vector<linalg::Matrix<float>> gradients;
    std::vector<linalg::MatrixView<float>> views;
    for (size_t l = 0; l < layers.size(); ++l) {
      const auto& layer = layers[l];
      const uint64_t seed = 100 * step + l;
      const uint64_t of_rank = seed + uint64_t{10000} * rank_;
      gradients.push_back(Numbers(layer.d_out, layer.d_in, seed));
      if (!session_.NeedsStatistics(step, static_cast<int>(l))) continue;
      const auto inputs = Numbers(12, layer.d_in - layer.has_bias, of_rank);
      const auto hooks = Numbers(12, layer.d_out, of_rank + 5000);
      absl::Status status = session_.AccumulateLinear(
          static_cast<int>(l), inputs.view(), hooks.view(), 12);
      if (!status.ok()) return status;
    }
    for (auto& gradient : gradients) views.push_back(gradient.view());
    auto result = session_.Step(step, settings, views);
    if (!result.ok()) return result.status();
    uint64_t hash = 0;
    for (const auto& gradient : gradients) {
      const uint64_t parts[] = {
          hash,
          Checksum(gradient.values.data(), gradient.size() * sizeof(float))};
      hash = Checksum(parts, sizeof(parts));
    }
    hashes.push_back(hash);
    results.push_back(*std::move(result));
    return absl::OkStatus();
  }

  std::vector<uint64_t> hashes;
  std::vector<StepResult> results;

 private:
  const int rank_;
  Session& session_;
};

struct Seen {
  std::vector<uint64_t> hashes;
  std::vector<StepResult> results;
};

// Runs `steps` steps on all ranks; expects one hash per step everywhere.
std::vector<Seen> RunSteps(
    MiniCluster& cluster, const JobSpec& job, int64_t steps,
    const std::function<void(int rank, int64_t step)>& before = nullptr,
    const std::function<StepSettings(int rank, int64_t step)>& settings =
        nullptr) {
  std::vector<Seen> seen(job.ranks);
  const absl::Status status = cluster.Run(job, [&](int rank, Session& session) {
    Trainer trainer(rank, session);
    for (int64_t step = 0; step < steps; ++step) {
      if (before != nullptr) before(rank, step);
      absl::Status taken = trainer.Step(
          step, settings != nullptr ? settings(rank, step) : StepSettings());
      if (!taken.ok()) return taken;
    }
    seen[rank] = {trainer.hashes, trainer.results};
    return absl::OkStatus();
  });
  EXPECT_THAT(status, IsOk());
  for (const Seen& rank : seen) EXPECT_EQ(rank.hashes, seen[0].hashes);
  return seen;
}

std::unique_ptr<MiniCluster> Cluster(int servers) {
  ClusterOptions options;
  options.servers = servers;
  auto cluster = MiniCluster::Start(options);
  EXPECT_THAT(cluster, IsOk());
  return cluster.ok() ? *std::move(cluster) : nullptr;
}

void ExpectPreconditionsEveryLayer(MiniCluster& cluster,
                                   v1::FactorSource source,
                                   v1::ComputeMethod method) {
  JobSpec job = Job(3, worker::SynchronousJobOptions());
  job.name = absl::StrCat("job-", source, "-", method);
  job.options.set_factor_source(source);
  job.options.set_method(method);
  job.options.set_factor_update_steps(2);
  job.options.set_inv_update_steps(4);
  const auto seen = RunSteps(cluster, job, 9);
  for (const StepResult& result : seen[0].results) {
    EXPECT_EQ(result.fallbacks, 0) << job.name;
    EXPECT_FALSE(result.voided);
  }
  // Synchronous: every answer follows the schedule exactly.
  EXPECT_EQ(seen[0].results[8].layers[0].age, 0);
  EXPECT_EQ(seen[0].results[7].layers[0].age, 3);
}

TEST(Cluster, PreconditionsEveryLayerWhateverTheSource) {
  const auto cluster = Cluster(2);
  for (const auto source :
       {v1::FACTOR_SOURCE_ALL, v1::FACTOR_SOURCE_ONE_RANK}) {
    for (const auto method :
         {v1::COMPUTE_METHOD_INVERSE, v1::COMPUTE_METHOD_EIGEN}) {
      ExpectPreconditionsEveryLayer(*cluster, source, method);
    }
  }
}

TEST(Cluster, AsynchronousAnswersStayInsideTheBound) {
  const auto cluster = Cluster(2);
  v1::JobOptions options = worker::DefaultJobOptions();
  options.set_factor_update_steps(1);
  options.set_inv_update_steps(3);
  options.set_max_staleness(2);
  const auto seen = RunSteps(*cluster, Job(2, options), 20);
  for (const StepResult& result : seen[0].results) {
    EXPECT_EQ(result.fallbacks, 0);
    for (const auto& layer : result.layers) {
      EXPECT_GE(layer.age, 0);
      EXPECT_LE(layer.age, 3 - 1 + 2);  // Interval less one, plus the bound.
    }
  }
}

// What a client reaches the servers through, except that the reply for `layer`
// is lost at step `lost`.
client::ClientDependencies LosingReply(const std::string& scheduler,
                                       int64_t lost, int layer) {
  client::ClientDependencies real = client::GrpcDependencies(scheduler);
  client::testing::FaultyTransport::Faults faults;
  faults.drop_reply = [lost, layer](int64_t step, int of_layer) {
    return step == lost && of_layer == layer;
  };
  real.transport = std::make_unique<client::testing::FaultyTransport>(
      std::move(real.transport), faults);
  return real;
}

TEST(Cluster, AReplyLostForOneRankIsAFallbackForAll) {
  const auto cluster = Cluster(2);
  v1::JobOptions options = worker::SynchronousJobOptions();
  options.set_step_budget_ms(2000);
  options.set_round_deadline_ms(1000);
  JobSpec job = Job(3, options);
  constexpr int kLayer = 2;
  job.dependencies = [](int) {
    worker::SessionDependencies dependencies;
    // One rank is this layer's delegate: one reply is lost.
    dependencies.connect = [](const std::string& scheduler) {
      return LosingReply(scheduler, 2, kLayer);
    };
    return dependencies;
  };
  const auto seen = RunSteps(*cluster, job, 4);
  for (const Seen& rank : seen) {
    EXPECT_EQ(rank.results[1].fallbacks, 0);
    EXPECT_EQ(rank.results[2].fallbacks, 1);
    EXPECT_FALSE(rank.results[2].layers[kLayer].preconditioned);
    EXPECT_EQ(rank.results[3].fallbacks, 0);
  }
}

TEST(Cluster, AKilledServerCostsItsLayersUntilTheyArePlacedAgain) {
  const auto cluster = Cluster(2);
  v1::JobOptions options = worker::DefaultJobOptions();
  options.set_factor_update_steps(1);
  options.set_inv_update_steps(2);
  options.set_step_budget_ms(300);
  options.set_round_deadline_ms(100);
  const JobSpec job = Job(3, options);
  std::vector<Seen> seen(job.ranks);
  constexpr int64_t kKillAt = 5;
  const absl::Status status =
      cluster->Run(job, [&](int rank, Session& session) {
        Trainer trainer(rank, session);
        const absl::Time deadline = absl::Now() + absl::Seconds(30);
        // All ranks see the same result, so they stop at the same step.
        bool recovered = false;
        for (int64_t step = 0; !recovered && absl::Now() < deadline; ++step) {
          if (rank == 0 && step == kKillAt) cluster->KillServer(1);
          absl::Status taken = trainer.Step(step);
          if (!taken.ok()) return taken;
          recovered = trainer.results.back().fallbacks == 0 &&
                      trainer.results.back().epoch > 1;
        }
        seen[rank] = {trainer.hashes, trainer.results};
        return recovered ? absl::OkStatus()
                         : absl::DeadlineExceededError("never recovered");
      });
  ASSERT_THAT(status, IsOk());
  for (const Seen& rank : seen) EXPECT_EQ(rank.hashes, seen[0].hashes);
  for (int64_t step = 0; step < kKillAt; ++step) {
    EXPECT_EQ(seen[0].results[step].fallbacks, 0) << step;
  }
  // The other ranks may have had their answers of the step of the kill.
  const StepResult& hit = seen[0].results[kKillAt];
  const StepResult& lost =
      hit.fallbacks > 0 ? hit : seen[0].results[kKillAt + 1];
  EXPECT_GT(lost.fallbacks, 0);
  EXPECT_LT(lost.fallbacks, 4);  // The other server's layers went on.
  EXPECT_EQ(seen[0].results.back().fallbacks, 0);
}

// Moves every layer of server 0 to server 1.
absl::Status DrainServer0(MiniCluster& cluster) {
  const auto scheduler =
      v1::Scheduler::NewStub(CreateChannel(cluster.scheduler_address()));
  grpc::ClientContext context;
  v1::DrainServerRequest drain;
  drain.set_server("server0");
  v1::DrainServerResponse response;
  return FromGrpcStatus(scheduler->DrainServer(&context, drain, &response),
                        "scheduler");
}

v1::JobStatus StatusOfTheJob(MiniCluster& cluster) {
  const auto scheduler =
      v1::Scheduler::NewStub(CreateChannel(cluster.scheduler_address()));
  grpc::ClientContext context;
  v1::GetStatusResponse status;
  EXPECT_TRUE(scheduler->GetStatus(&context, {}, &status).ok());
  return status.jobs_size() == 1 ? status.jobs(0) : v1::JobStatus();
}

// Steps of one rank, with a drain of server 0 at step 5, until the move is
// over.
absl::Status StepAcrossDrain(MiniCluster& cluster, int rank, Trainer& trainer) {
  // Steps after the first that uses the new epoch: enough for the move, which
  // begins two heartbeats ahead, to come and go.
  constexpr int64_t kAfterwards = 400;
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  int64_t end = std::numeric_limits<int64_t>::max();
  for (int64_t step = 0; step < end; ++step) {
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError("the epoch never came");
    }
    if (rank == 0 && step == 5) {
      absl::Status drained = DrainServer0(cluster);
      if (!drained.ok()) return drained;
    }
    absl::Status taken = trainer.Step(step);
    if (!taken.ok()) return taken;
    // All ranks use one epoch, so they stop at the same step.
    const bool moved = trainer.results.back().epoch > 1;
    if (moved) end = std::min(end, step + kAfterwards);
  }
  return absl::OkStatus();
}

TEST(Cluster, ADrainUnderAJobChangesNoBit) {
  const auto cluster = Cluster(2);
  const JobSpec job = Job(3, EveryStep());
  std::vector<Seen> seen(job.ranks);
  v1::JobStatus at_end;
  const absl::Status status =
      cluster->Run(job, [&](int rank, Session& session) {
        Trainer trainer(rank, session);
        absl::Status stepped = StepAcrossDrain(*cluster, rank, trainer);
        if (!stepped.ok()) return stepped;
        if (rank == 0) at_end = StatusOfTheJob(*cluster);
        seen[rank] = {trainer.hashes, trainer.results};
        return absl::OkStatus();
      });
  ASSERT_THAT(status, IsOk());
  EXPECT_EQ(at_end.moving_size(), 0);
  for (const v1::LayerOwner& owner : at_end.assignment().owners()) {
    EXPECT_EQ(owner.server(), "server1");
  }
  for (const StepResult& result : seen[0].results) {
    EXPECT_EQ(result.fallbacks, 0);
  }
  const auto calm = Cluster(2);
  const std::vector<Seen> expected =
      RunSteps(*calm, job, static_cast<int64_t>(seen[0].hashes.size()));
  for (const Seen& rank : seen) EXPECT_EQ(rank.hashes, expected[0].hashes);
}

// A planned move costs nothing: no fallback, no contribution lost or late.
void ExpectDrainIsFree(const v1::JobOptions& options) {
  const auto cluster = Cluster(2);
  const JobSpec job = Job(3, options);
  std::vector<Seen> seen(job.ranks);
  std::atomic<int64_t> end{std::numeric_limits<int64_t>::max()};
  server::ServerProcess& leaving = cluster->server(1);
  const absl::Status status =
      cluster->Run(job, [&](int rank, Session& session) {
        Trainer trainer(rank, session);
        const absl::Time deadline = absl::Now() + absl::Seconds(30);
        for (int64_t step = 0; step < end; ++step) {
          if (rank == 0 && step == 5) leaving.BeginDrain();
          // Ranks are at most one step apart, so all see the end in time.
          const bool is_over =
              rank == 0 && end > step + 20 &&
              ((step > 5 && leaving.IsDrained()) || absl::Now() > deadline);
          if (is_over) end = step + 20;
          absl::Status taken = trainer.Step(step);
          if (!taken.ok()) return taken;
        }
        seen[rank] = {trainer.hashes, trainer.results};
        return absl::OkStatus();
      });
  ASSERT_THAT(status, IsOk());
  for (const Seen& rank : seen) EXPECT_EQ(rank.hashes, seen[0].hashes);
  for (size_t step = 0; step < seen[0].results.size(); ++step) {
    EXPECT_EQ(seen[0].results[step].fallbacks, 0) << "step " << step;
  }
  EXPECT_GT(seen[0].results.back().epoch, 1u);
  const v1::ServerCounters gone = leaving.Status().counters();
  const v1::ServerCounters here = cluster->server(0).Status().counters();
  EXPECT_GT(gone.layers_handed_over(), 0);
  EXPECT_EQ(here.layers_received(), gone.layers_handed_over());
  EXPECT_EQ(gone.rounds_dropped() + here.rounds_dropped(), 0);
  EXPECT_EQ(gone.rounds_partial() + here.rounds_partial(), 0);
  EXPECT_EQ(gone.contributions_late() + here.contributions_late(), 0);
  EXPECT_EQ(gone.contributions_lost() + here.contributions_lost(), 0);
}

TEST(Cluster, ADrainedServerLeavesWithoutAFallback) {
  v1::JobOptions options = worker::DefaultJobOptions();
  options.set_factor_update_steps(1);
  options.set_inv_update_steps(2);
  // A loaded machine may stop a process for a second.
  options.set_step_budget_ms(20000);
  options.set_round_deadline_ms(10000);
  ExpectDrainIsFree(options);
}

TEST(Cluster, ADrainedServerLeavesASynchronousJobWithoutAFallback) {
  v1::JobOptions options = worker::DefaultJobOptions();
  options.set_factor_update_steps(2);
  options.set_inv_update_steps(4);
  options.set_max_staleness(0);
  options.set_round_policy(v1::ROUND_POLICY_WAIT);
  options.set_step_budget_ms(10000);
  ExpectDrainIsFree(options);
}

TEST(Cluster, AVoidStepChangesNothing) {
  const auto cluster = Cluster(2);
  const auto settings = [](int rank, int64_t step) {
    StepSettings chosen;
    if (rank == 1 && step == 2) chosen.void_reason = "overflow";
    return chosen;
  };
  const auto seen =
      RunSteps(*cluster, Job(2, EveryStep()), 4, nullptr, settings);
  for (const Seen& rank : seen) {
    EXPECT_FALSE(rank.results[1].voided);
    EXPECT_TRUE(rank.results[2].voided);
    EXPECT_FALSE(rank.results[3].voided);
    // The void step's round was not merged: versions count merged rounds.
    EXPECT_EQ(rank.results[3].layers[0].version,
              rank.results[1].layers[0].version + 1);
  }
}

TEST(Cluster, SeveralJobsShareOnePool) {
  const auto cluster = Cluster(2);
  JobSpec first = Job(1, EveryStep());
  JobSpec second = first;
  second.name = "other";
  second.layers = {{"only", 3, 3, false}};
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto other, cluster->Join(second));
  const auto seen = RunSteps(*cluster, first, 3);
  for (const StepResult& result : seen[0].results) {
    EXPECT_EQ(result.fallbacks, 0);
  }
  EXPECT_THAT(other->Finish(), IsOk());
  EXPECT_THAT(other->Finish(), IsOk());  // Twice is fine.
  // The scheduler tells the servers after it has answered.
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  for (int server : {0, 1}) {
    while (cluster->server(server).Status().predicted_bytes() > 0 &&
           absl::Now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_EQ(cluster->server(server).Status().predicted_bytes(), 0) << server;
  }
}

TEST(Cluster, OneNameOtherLayersIsRefusedAndTheFirstGoesOn) {
  const auto cluster = Cluster(1);
  const JobSpec first = Job(1, EveryStep());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto session, cluster->Join(first));
  JobSpec second = first;
  second.layers[1].d_out = 9;
  EXPECT_THAT(cluster->Join(second),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("second"), HasSubstr("9"))));
  Trainer trainer(0, *session);
  EXPECT_THAT(trainer.Step(0), IsOk());
  EXPECT_EQ(trainer.results[0].fallbacks, 0);
}

TEST(Cluster, ARankCannotBeClaimedTwice) {
  const auto cluster = Cluster(1);
  const JobSpec job = Job(1, EveryStep());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto session, cluster->Join(job));
  EXPECT_THAT(cluster->Join(job),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("rank 0")));
}

TEST(Cluster, NonFiniteStatisticsLeaveTheAverageAlone) {
  const auto cluster = Cluster(1);
  JobSpec job = Job(1, EveryStep());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto session, cluster->Join(job));
  Trainer trainer(0, *session);
  ASSERT_THAT(trainer.Step(0), IsOk());
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> bad(4, inf);
  const std::vector<float> gradient(6, 1.0f);
  ASSERT_THAT(session->AccumulateLinear(0, {bad.data(), 1, 4},
                                        {gradient.data(), 1, 6}, 1),
              IsOk());
  ASSERT_THAT(trainer.Step(1), IsOk());
  // Layer 0 was preconditioned from the round before; the others moved on.
  EXPECT_TRUE(trainer.results[1].layers[0].preconditioned);
  EXPECT_EQ(trainer.results[1].layers[0].version, 1);
  EXPECT_EQ(trainer.results[1].layers[1].version, 2);
  EXPECT_EQ(trainer.results[1].layers[0].age, 1);
}

}  // namespace
}  // namespace kronserve
