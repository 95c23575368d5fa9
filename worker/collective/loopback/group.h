// The memory that the ranks of one loopback group share.
//
// Layer: worker. Private to worker/collective/loopback/.

#ifndef KRONSERVE_WORKER_COLLECTIVE_LOOPBACK_GROUP_H_
#define KRONSERVE_WORKER_COLLECTIVE_LOOPBACK_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/mutex.h"

namespace kronserve::worker::loopback {

// A meeting point that every rank passes once per operation.
//
// Thread safety: thread-safe; one thread per rank, and Break() from any.
// Invariants:    a rank is at most one operation ahead of the slowest, so two
//                sets of slots are enough: one is read while the other fills.
class Group {
 public:
  Group(std::string name, int size);

  const std::string& name() const { return name_; }
  int size() const { return size_; }

  // Marks `rank` as taken; false when it already is.
  bool Claim(int rank) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits until every rank has come.
  absl::Status Connect(int rank, absl::Duration timeout)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Leaves a copy of `bytes` bytes at `in`, waits for the other ranks, and
  // returns what each left, in rank order. Valid until this rank's next call.
  //
  // Errors: as Communicator; the group is finished afterwards.
  absl::Status Exchange(int rank, const void* in, size_t bytes,
                        absl::Duration timeout,
                        const std::vector<std::string>** slots)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Finishes the group: what waits fails with `why`, later calls with
  // kUnavailable. The first reason stays.
  void Break(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Status MeetLocked(int rank, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AllArrivedLocked(int64_t meeting) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string MissingLocked(int64_t meeting) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Constant after construction.
  const std::string name_;
  const int size_;

  // [2][ranks]. A rank writes only its own, before it arrives; the mutex
  // passed on arrival orders that before the reads of the others.
  std::vector<std::string> slots_[2];

  Mutex mu_;
  CondVar changed_;
  std::vector<bool> claimed_ ABSL_GUARDED_BY(mu_);
  std::vector<int64_t> arrivals_ ABSL_GUARDED_BY(mu_);  // [ranks]
  absl::Status broken_ ABSL_GUARDED_BY(mu_);            // OK while alive.
};

}  // namespace kronserve::worker::loopback

#endif  // KRONSERVE_WORKER_COLLECTIVE_LOOPBACK_GROUP_H_
