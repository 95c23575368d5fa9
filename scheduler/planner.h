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
#include "scheduler/job.h"
#include "scheduler/membership.h"

namespace kronserve::scheduler {

// What one job, or all, take on one server, as predicted.
struct ServerUse {
  int64_t bytes = 0;
  double seconds = 0;  // Of refreshing every layer once.
  int64_t layers = 0;
};
using UseByServer = std::map<std::string, ServerUse>;

// Nodes of a world; at least 1 when it has ranks.
int NumNodes(const v1::World& world);

// What `job` takes. Servers that `membership` does not know are left out.
UseByServer UseOfJob(const Job& job, const Membership& membership);

// The sum over all jobs but `except` (may be null).
UseByServer UseOfAll(const JobTable& jobs, const Membership& membership,
                     const Job* except);

// Owners for the layers of `job` that have none (job.owners), on the usable
// servers; those that have one keep it.
//
//   world    the world that the owners are for.
//   partial  layers that fit nowhere stay without an owner instead of failing.
//
// Errors: as placement::Place().
absl::StatusOr<std::vector<std::string>> PlanOwners(
    const Job& job, const v1::World& world, bool partial,
    const Membership& membership, const UseByServer& use_of_others);

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_PLANNER_H_
