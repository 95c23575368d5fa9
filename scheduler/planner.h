// From jobs and servers to owners: the scheduler's use of placement/.
//
// Layer: scheduler. May include common/, proto/ and placement/.

#ifndef KRONSERVE_SCHEDULER_PLANNER_H_
#define KRONSERVE_SCHEDULER_PLANNER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kronserve/v1/job.pb.h"
#include "placement/cost_curve.h"
#include "scheduler/job.h"
#include "scheduler/membership.h"

namespace kronserve::scheduler {

// What one job, or all, take on one server, as predicted.
struct ServerUse {
  // Layers on their way away count until they are gone.
  int64_t bytes = 0;
  double seconds = 0;  // Of refreshing every layer once.
  int64_t layers = 0;
};
using UseByServer = std::map<std::string, ServerUse>;

// Nodes of a world; at least 1 when it has ranks.
int NumNodes(const v1::World& world);

// What one refresh of `layer` takes.
placement::RefreshWork WorkOf(const v1::LayerSpec& layer);

// What `job` takes. Servers that `membership` does not know are left out.
UseByServer UseOfJob(const Job& job, const Membership& membership);

// The sum over all jobs but `except` (may be null).
UseByServer UseOfAll(const JobTable& jobs, const Membership& membership,
                     const Job* except);

// Owners for the layers of `job` that have none, on the usable servers that do
// not drain; those that have one keep it.
//
//   world    the world that the owners are for.
//   partial  layers that fit nowhere stay without an owner instead of failing.
//
// Errors: as placement::Place().
absl::StatusOr<std::vector<std::string>> PlanOwners(
    const Job& job, const v1::World& world, bool partial,
    const Membership& membership, const UseByServer& use_of_others);

struct PlannedMoves {
  // [layers]: the owner each shall have; the present one where it stays.
  std::vector<std::string> owners;
  // Why it is not better; empty when it is.
  std::string note;
};

// Where the layers of `job` shall go for pins, for drains and, if `balance`,
// for an even load. Layers that move already stay where they go; servers that
// are suspect at `now` get nothing.
//
// Errors: as placement::Rebalance().
absl::StatusOr<PlannedMoves> PlanMoves(const Job& job, bool balance,
                                       const Membership& membership,
                                       const UseByServer& use_of_others,
                                       absl::Time now);

// Whether `layers` (positions) of `job` fit on `server` beside what else is
// there.
//
// Errors:
//   kResourceExhausted  they do not; names the bytes needed and had.
absl::Status CheckRoom(const Job& job, const std::vector<int>& layers,
                       const ServerMember& server,
                       const UseByServer& use_of_others);

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_PLANNER_H_
