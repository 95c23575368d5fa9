#include "tests/mini_cluster.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status_macros.h"
#include "scheduler/memory/factory.h"
#include "worker/collective/loopback/factory.h"

namespace kronserve {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(20);

absl::StatusOr<std::unique_ptr<worker::Session>> JoinRank(
    const JobSpec& job, int rank, const std::string& scheduler_address,
    const worker::CommunicatorFactory& groups) {
  worker::SessionOptions options;
  options.scheduler = scheduler_address;
  options.job = job.name;
  options.rank = rank;
  options.world_size = job.ranks;
  options.node = absl::StrCat("node", rank / job.ranks_per_node);
  options.device = "cpu";
  options.job_options = job.options;
  return worker::JoinWithDependencies(options, job.layers, groups,
                                      job.dependencies(rank));
}

absl::Status RunRank(
    const JobSpec& job, int rank, const std::string& scheduler_address,
    const worker::CommunicatorFactory& groups,
    const std::function<absl::Status(int rank, worker::Session&)>& body) {
  KRONSERVE_ASSIGN_OR_RETURN(auto session,
                             JoinRank(job, rank, scheduler_address, groups));
  KRONSERVE_RETURN_IF_ERROR(body(rank, *session));
  KRONSERVE_RETURN_IF_ERROR(session->job_group().Barrier());
  return rank == 0 ? session->Finish() : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<MiniCluster>> MiniCluster::Start(
    const ClusterOptions& options) {
  auto cluster = std::unique_ptr<MiniCluster>(new MiniCluster);
  scheduler::SchedulerOptions scheduler_options;
  scheduler_options.listen = "127.0.0.1:0";
  scheduler_options.store = "memory";
  scheduler_options.heartbeat = options.heartbeat;
  scheduler_options.lease = options.lease;
  KRONSERVE_ASSIGN_OR_RETURN(
      cluster->scheduler_,
      scheduler::SchedulerProcess::Start(
          scheduler_options, scheduler::memory::CreateStateStore()));
  for (int i = 0; i < options.servers; ++i) {
    KRONSERVE_RETURN_IF_ERROR(cluster->AddServer());
  }
  return cluster;
}

absl::Status MiniCluster::AddServer() {
  server::ServerOptions options;
  options.name = absl::StrCat("server", servers_.size());
  options.scheduler = scheduler_->address();
  options.device = "cpu";
  options.cost_probe = "default";
  KRONSERVE_ASSIGN_OR_RETURN(auto server,
                             server::ServerProcess::Start(options));
  const absl::Time deadline = absl::Now() + kStartTimeout;
  while (!server->is_registered()) {
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(options.name, " did not register in time"));
    }
    std::this_thread::yield();
  }
  servers_.push_back(std::move(server));
  return absl::OkStatus();
}

const std::string& MiniCluster::scheduler_address() const {
  return scheduler_->address();
}

absl::StatusOr<std::unique_ptr<worker::Session>> MiniCluster::Join(
    const JobSpec& job) {
  worker::LoopbackHub hub;
  return JoinRank(job, 0, scheduler_address(), hub.Factory());
}

absl::Status MiniCluster::Run(
    const JobSpec& job,
    const std::function<absl::Status(int rank, worker::Session&)>& body) {
  worker::LoopbackHub hub;
  std::vector<absl::Status> results(job.ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < job.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      results[rank] =
          RunRank(job, rank, scheduler_address(), hub.Factory(), body);
    });
  }
  for (std::thread& thread : threads) thread.join();
  // A rank that failed makes the others fail later: its error says why.
  for (const absl::Status& result : results) {
    if (!result.ok() && !absl::IsUnavailable(result)) return result;
  }
  for (const absl::Status& result : results) {
    KRONSERVE_RETURN_IF_ERROR(result);
  }
  return absl::OkStatus();
}

}  // namespace kronserve
