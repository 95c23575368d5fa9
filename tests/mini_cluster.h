// A whole Kronserve cluster in one process: real scheduler and servers on
// loopback ports, ranks as threads.
//
// Layer: tests.

#ifndef KRONSERVE_TESTS_MINI_CLUSTER_H_
#define KRONSERVE_TESTS_MINI_CLUSTER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "curvature/layer_shape.h"
#include "kronserve/v1/job.pb.h"
#include "scheduler/scheduler_process.h"
#include "server/server_process.h"
#include "worker/session.h"
#include "worker/session_dependencies.h"

namespace kronserve {

struct ClusterOptions {
  int servers = 2;
  // Short, so that a test of what happens after a lease need not wait long.
  absl::Duration heartbeat = absl::Milliseconds(100);
  absl::Duration lease = absl::Seconds(1);
};

struct JobSpec {
  std::string name = "job";
  int ranks = 1;
  int ranks_per_node = 2;
  v1::JobOptions options;
  std::vector<curvature::LayerShape> layers;
  // Per rank: what its session reaches the world through.
  std::function<worker::SessionDependencies(int rank)> dependencies = [](int) {
    return worker::SessionDependencies();
  };
};

// Thread safety: Start() and Run() by one thread; KillServer() by any.
class MiniCluster {
 public:
  // Starts a scheduler and servers "server0", "server1", ...; returns when all
  // are registered.
  static absl::StatusOr<std::unique_ptr<MiniCluster>> Start(
      const ClusterOptions& options);

  // Joins one rank of a job, which must have one.
  absl::StatusOr<std::unique_ptr<worker::Session>> Join(const JobSpec& job);

  // Joins `ranks` sessions, each on a thread of its own, runs `body` on each,
  // then finishes the job. The first error of any rank.
  absl::Status Run(
      const JobSpec& job,
      const std::function<absl::Status(int rank, worker::Session&)>& body);

  const std::string& scheduler_address() const;
  server::ServerProcess& server(int index) { return *servers_[index]; }
  void KillServer(int index) { servers_[index]->Kill(); }

 private:
  MiniCluster() = default;
  absl::Status AddServer();

  std::unique_ptr<scheduler::SchedulerProcess> scheduler_;
  std::vector<std::unique_ptr<server::ServerProcess>> servers_;
};

}  // namespace kronserve

#endif  // KRONSERVE_TESTS_MINI_CLUSTER_H_
