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
#include "kronserve/v1/scheduler_state.pb.h"
#include "scheduler/checkpoint_run.h"
#include "scheduler/deliveries.h"
#include "scheduler/rendezvous_board.h"
#include "scheduler/roster.h"
#include "scheduler/state_store.h"
#include "scheduler/step_pace.h"

namespace kronserve::scheduler {

// Steps between the newest reported one and the first that a new owner
// answers: ranks may be that far ahead of their last heartbeat.
inline constexpr int64_t kStepMargin = 2;

// Where a layer is, as it shall be.
struct LayerPlace {
  // Empty: to be placed.
  std::string owner;
  // While the state is on its way from another server.
  std::string source;
  // Epoch that gave the layer its owner.
  uint64_t epoch = 0;
  // The newest assignment says so too.
  bool issued = false;
  // With what state its newest owner began; epoch 0: not reported.
  v1::LayerRecovery recovery;

  // Since when the source says that it does not have the layer (any more),
  // while the owner still waits for it.
  absl::Time source_gone = absl::InfiniteFuture();

  bool moving() const { return !source.empty(); }
};

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
  StepPace pace;
  // All owners had confirmed once, so ranks may have begun.
  bool was_ready = false;
  // Why the world that the ranks wait for cannot start.
  absl::Status failure;
  bool finished = false;
  bool expired = false;  // Finished, but (as far as is known) not by its ranks.
  // When finished, among the others.
  uint64_t finish_order = 0;
  // When the last rank's lease ended; InfiniteFuture while one lives.
  absl::Time silent_since = absl::InfiniteFuture();

  // One per layer; ahead of config.assignment while not `issued`.
  std::vector<LayerPlace> layers;
  // Servers that refused to take more layers of this job.
  std::set<std::string> refusing;
  // A layer has lost its owner or its source.
  bool needs_plan = false;
  // A member holds a higher epoch than we knew: issue all owners anew.
  bool needs_reissue = false;
  // Something changed that layers may move for: a pin, a drain, more room.
  bool needs_moves = false;
  // A server came that has no share yet. Cleared by one look at the balance.
  bool needs_balance = false;
  // Why the placement is not better than it is.
  std::string placement_note;

  v1::JobWishes wishes;
  // Of the last of wishes.checkpoints while that is being written.
  CheckpointRun checkpoint;

  // ConfigureJob and DropJob; versions are the epoch and the world version.
  Deliveries configures;
  Deliveries drops;

  bool durable = true;
  uint64_t save_ticket = 0;  // 0: no write is under way.
  // Of the newest write that was asked for, and of the newest that is done.
  uint64_t last_save = 0;
  uint64_t stored_save = 0;
  std::string save_error;
  absl::Time save_retry = absl::InfinitePast();

  bool has_world() const { return config.has_world(); }
  // It is stored, and stays for `job_ttl` without ranks: it has a world, or
  // something was asked of it.
  bool kept() const;
  // Servers drop worlds up to this one: they have ended, or could not start.
  int64_t given_up() const { return static_cast<int64_t>(drops.version()); }
  uint64_t epoch() const { return config.assignment().epoch(); }
  int64_t world_version() const { return config.world().version(); }
  int num_ownerless() const;
  bool any_moving() const;
  // Whether `server` owns a layer or is the source of one.
  bool Involves(const std::string& server) const;
  // Null when none is being written.
  const v1::StoredCheckpoint* WritingCheckpoint() const;
  v1::JobState State(absl::Time now) const;
  // All steps before this one are over on all ranks.
  int64_t Progress(absl::Time now) const;
};

// NOT_FOUND for a job that is not there or has finished.
absl::Status UnknownJob(const std::string& name);

using JobTable = std::map<std::string, Job>;

// The writes that make the present state of `job`, the high water and the term
// the stored ones. Idempotent.
WriteBatch SaveJob(const Job& job, const HighWater& high_water, uint64_t term);

// The write that makes a drain by hand, or its end, last.
StateWrite SaveDrain(const std::string& server, bool drained);

// The servers that SaveDrain() wrote down as drained.
std::vector<std::string> RestoreDrains(const StateMap& state);

// Rebuilds jobs and high water from what SaveJob() wrote. Every rank gets one
// fresh lease; nothing counts as confirmed by a server.
//
// Errors:
//   kDataLoss  a record does not parse or contradicts itself; names the key.
absl::Status RestoreJobs(const StateMap& state, absl::Duration validity,
                         absl::Time now, JobTable* jobs, HighWater* high_water);

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_JOB_H_
