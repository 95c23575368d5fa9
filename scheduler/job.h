// One job as the scheduler knows it, and how it is stored.
//
// Layer: scheduler. May include common/, proto/ and placement/.

#ifndef KRONSERVE_SCHEDULER_JOB_H_
#define KRONSERVE_SCHEDULER_JOB_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kronserve/v1/job.pb.h"
#include "kronserve/v1/scheduler.pb.h"
#include "scheduler/deliveries.h"
#include "scheduler/rendezvous_board.h"
#include "scheduler/roster.h"
#include "scheduler/state_store.h"

namespace kronserve::scheduler {

// Steps between the newest reported one and the first that a new owner
// answers: ranks may be that far ahead of their last heartbeat.
inline constexpr int64_t kStepMargin = 2;

// Highest world version and epoch that any job that is gone, or any member,
// ever had; new ones are issued above them.
struct HighWater {
  int64_t world_version = 0;
  uint64_t epoch = 0;

  void Raise(int64_t other_world_version, uint64_t other_epoch);
};

// A job from its first rank's claim until it is finished and forgotten.
//
// Thread safety: none.
// Invariants:    nobody outside is told of config.world or config.assignment
//                while `durable` is false.
struct Job {
  Job(std::string job_name, absl::Duration validity)
      : name(std::move(job_name)), roster(validity) {}

  const std::string name;

  // Layers and options since the first claim; world and assignment since the
  // first world was formed.
  v1::JobConfig config;
  Roster roster;
  RendezvousBoard board;
  // Newest step any rank of this world reported; -1 if none.
  int64_t step = -1;
  // All owners had confirmed once, so ranks may have begun.
  bool was_ready = false;
  // Why the world that the ranks wait for cannot start.
  absl::Status failure;
  bool finished = false;
  // When finished, among the others.
  uint64_t finish_order = 0;
  // When the last rank's lease ended; InfiniteFuture while one lives.
  absl::Time silent_since = absl::InfiniteFuture();

  // [layers]: owners as they shall be; "" to be placed. Ahead of
  // config.assignment while needs_plan.
  std::vector<std::string> owners;
  // [layers]: epoch that gave the layer its owner.
  std::vector<uint64_t> placed_in;
  // Servers that refused to take more layers of this job.
  std::set<std::string> refusing;
  bool needs_plan = false;
  // A member holds a higher epoch than we knew: issue all owners anew.
  bool needs_reissue = false;

  // ConfigureJob and DropJob; versions are the epoch and the world version.
  Deliveries configures;
  Deliveries drops;

  bool durable = true;
  uint64_t save_ticket = 0;  // 0: no write is under way.
  std::string save_error;
  absl::Time save_retry = absl::InfinitePast();

  bool has_world() const { return config.has_world(); }
  uint64_t epoch() const { return config.assignment().epoch(); }
  int64_t world_version() const { return config.world().version(); }
  int num_ownerless() const;
  v1::JobState State(absl::Time now) const;
};

using JobTable = std::map<std::string, Job>;

// The writes that make the present state of `job`, the high water and the term
// the stored ones. Idempotent.
WriteBatch SaveJob(const Job& job, const HighWater& high_water, uint64_t term);

// Rebuilds jobs and high water from what SaveJob() wrote. Every rank gets one
// fresh lease; nothing counts as confirmed by a server.
//
// Errors:
//   kDataLoss  a record does not parse or contradicts itself; names the key.
absl::Status RestoreJobs(const StateMap& state, absl::Duration validity,
                         absl::Time now, JobTable* jobs, HighWater* high_water);

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_JOB_H_
