// What a seed stands for: a cluster, a job, and what goes wrong when.
//
// Layer: tests.

#ifndef KRONSERVE_TESTS_SIMULATION_CLUSTER_PLAN_H_
#define KRONSERVE_TESTS_SIMULATION_CLUSTER_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kronserve/v1/job.pb.h"
#include "tests/simulation/network.h"

namespace kronserve::simulation {

enum class FaultKind {
  kKillServer,     // Its peers see the connection close.
  kLoseServer,     // With its machine: silence.
  kFreezeServer,   // Perhaps past its lease.
  kCutServer,      // From everybody, or in one direction.
  kCutServerLink,  // From the scheduler, or from one rank.
  kKillScheduler,
  kFreezeScheduler,
  kCutScheduler,  // From everybody.
  kKillRank,
  kFreezeRank,
  kBreakGroup,   // The ranks lose one another, and all live.
  kDiskFull,     // The scheduler's store refuses writes.
  kDrainServer,  // Layers move away, and may come back.
  kPinLayer,     // One layer moves to a server.
};
inline constexpr int kFaultKinds = 14;

const char* NameOf(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::kKillServer;
  absl::Duration at;
  absl::Duration lasts;  // Then what was killed starts again, and so on.
  int target = 0;        // Server or rank.
  int layer = 0;         // Of kPinLayer.
  int direction = 0;     // Of a cut: 0 both, 1 from, 2 to the target.
  int peer = -1;         // Of kCutServerLink: a rank; -1: the scheduler.
};

inline constexpr int kMostLayers = 5;

struct ClusterPlan {
  uint64_t seed = 0;
  int servers = 1;
  std::vector<absl::Duration> starts;  // [servers], when each first starts.
  std::vector<std::string> nodes;      // [ranks]
  std::vector<v1::LayerSpec> layers;
  v1::JobOptions options;
  NetworkWeather weather;    // While faults last; then it is fair.
  bool checkpoints = false;  // Servers write their layers, and read them.
  absl::Duration checkpoint_interval;
  bool only_losses = false;  // Servers are lost, and nothing else happens.

  // Chances, per rank and step, or per contribution.
  double void_step = 0;
  double empty = 0;
  double damaged = 0;
  // What a rank computes between two steps.
  absl::Duration fastest_step;
  absl::Duration slowest_step;
  // What a server's task takes; refreshes up to ten times that.
  absl::Duration longest_task;

  std::vector<Fault> faults;  // By time.
  absl::Duration faults_end;  // Everything is repaired by then.
  absl::Duration end;

  int ranks() const { return static_cast<int>(nodes.size()); }
};

ClusterPlan MakeClusterPlan(uint64_t seed);

// One line per fact, for the head of a trace.
std::vector<std::string> Describe(const ClusterPlan& plan);

}  // namespace kronserve::simulation

#endif  // KRONSERVE_TESTS_SIMULATION_CLUSTER_PLAN_H_
