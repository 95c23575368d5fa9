// The ranks of one job: who has asked to be part of it, and who lives.
//
// Layer: scheduler. May include common/, proto/ and placement/.

#ifndef KRONSERVE_SCHEDULER_ROSTER_H_
#define KRONSERVE_SCHEDULER_ROSTER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kronserve/v1/job.pb.h"
#include "kronserve/v1/scheduler.pb.h"

namespace kronserve::scheduler {

// Gathers ranks until all are there (complete), becomes a world (formed), and
// falls apart again when a rank is replaced or the run restarts:
//
//   gathering --last rank claims--> complete --MarkFormed()--> formed
//       ^                                                         |
//       +--- higher restart count, or a rank is claimed that -----+
//            is dead or was left out
//
// Elastic ranks (min_ranks) do not wait for all: once enough have claimed and
// nobody new has for one validity, the roster is complete without the others.
// Processes keep the rank they ask for; in the world, ranks are numbered from 0
// in that order.
//
// Thread safety: none.
// Invariants:    formed() means that the last world made from it is current.
class Roster {
 public:
  // `validity`: how long a sign of life counts.
  explicit Roster(absl::Duration validity) : validity_(validity) {}

  // A formed roster of a world from before our restart; fresh leases.
  void Restore(const v1::World& world, absl::Time now);

  // A process claims a rank. Repeats renew its lease.
  //
  //   request  fields in range (rank < world_size, ...), checked before.
  //
  // Errors (nothing changes):
  //   kAlreadyExists  the job lives under another run id or (not elastic)
  //                   world size, or the rank is held by another live
  //                   incarnation.
  //   kAborted        the restart count is older than the job's.
  absl::Status Claim(const v1::JoinJobRequest& request, absl::Time now);

  // A rank of the formed world, as numbered there, shows a sign of life.
  //
  // Errors:
  //   kInvalidArgument  there is no such rank.
  //   kAborted          not formed, or another incarnation has the rank.
  absl::Status Renew(int rank, uint64_t incarnation, absl::Time now);

  // Ranks that fell silent while gathering have to claim again.
  void Expire(absl::Time now);
  void ExtendLeases(absl::Duration by);

  bool complete() const;
  bool formed() const { return formed_; }
  void MarkFormed() { formed_ = true; }
  // The world could not start: complete again.
  void MarkGathering() { formed_ = false; }

  // The job checkpoint that ranks with a state ask to be restored; empty: none.
  std::string restore_checkpoint() const;

  // Grows whenever the ranks of a world are given up for new ones.
  int64_t generation() const { return generation_; }

  // The world of a complete roster. It starts at the lowest step of the ranks
  // that are not fresh.
  v1::World MakeWorld(int64_t version) const;

  // One line per absent rank, cut after a few. Empty when complete.
  std::vector<std::string> Missing() const;

  bool AnyAlive(absl::Time now) const;
  // Ranks that may claim: the largest world.
  int world_size() const { return static_cast<int>(ranks_.size()); }
  const std::string& run_id() const { return run_id_; }
  int64_t restart_count() const { return restart_count_; }

 private:
  struct Rank {
    // 0: never claimed.
    uint64_t incarnation = 0;
    // Part of what is being gathered, or of the formed world.
    bool joined = false;
    std::string node;
    int64_t next_step = 0;
    bool fresh = false;
    int min_ranks = 0;
    std::string restore_checkpoint;
    absl::Time last_heard = absl::InfinitePast();
    absl::Time lease_end = absl::InfinitePast();
  };

  absl::Status CheckClaim(const v1::JoinJobRequest& request,
                          absl::Time now) const;
  void Reset(const v1::JoinJobRequest& request);
  int num_joined() const;
  int num_needed() const;
  // The rank that has number `rank` in the formed world; null: none.
  Rank* InWorld(int rank);

  const absl::Duration validity_;
  std::string run_id_;
  int64_t restart_count_ = 0;
  int64_t generation_ = 0;
  bool formed_ = false;
  // When the last rank joined, and whether that is a validity ago.
  absl::Time newest_ = absl::InfinitePast();
  bool settled_ = false;
  std::vector<Rank> ranks_;  // By the rank that was asked for.
};

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_ROSTER_H_
