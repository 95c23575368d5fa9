// Collective operations of a fixed group of ranks.
//
// Layer: worker. May include common/ and nothing else of this repository.
// Backends: loopback/ (ranks are threads of one process), gloo/ (TCP between
// processes). One contract suite runs over all of them.

#ifndef KRONSERVE_WORKER_COLLECTIVE_COMMUNICATOR_H_
#define KRONSERVE_WORKER_COLLECTIVE_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace kronserve::worker {

// One rank's end of a group. Every rank makes the same calls in the same
// order, with the same sizes.
//
// Thread safety: none. One thread uses it for its whole life; only Abort() may
//                be called from another.
// Invariants:    after an error the group is finished: every later call fails.
//                A lost rank means a new group under the next world version.
//
// Errors of every operation:
//   kUnavailable       a rank left or broke; the group must be rebuilt.
//   kDeadlineExceeded  a rank did not come within the group's timeout.
//   kInvalidArgument   root out of range; the caller fixes the call.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Overwrites `data` on every rank with that of `root`.
  virtual absl::Status Broadcast(void* data, size_t bytes, int root) = 0;

  // Copies every rank's `in` to `out` [size * bytes] on `root`, in rank order.
  // `out` is not touched elsewhere and may be null there.
  virtual absl::Status Gather(const void* in, size_t bytes, void* out,
                              int root) = 0;

  // Copies every rank's `in` to `out` [size * bytes] everywhere.
  virtual absl::Status AllGather(const void* in, size_t bytes, void* out) = 0;

  // Element by element, over the ranks. The sum's order is fixed by size and n.
  virtual absl::Status AllReduceMin(int64_t* values, size_t n) = 0;
  virtual absl::Status AllReduceSum(float* values, size_t n) = 0;

  virtual absl::Status Barrier() = 0;

  // Makes every pending and later call fail on every rank. Idempotent.
  virtual void Abort() = 0;
};

// Where ranks find one another: a small key-value board.
//
// Thread safety: thread-safe.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  virtual absl::Status Put(const std::string& key,
                           const std::string& value) = 0;
  // Waits until all keys are there; the values in order of `keys`.
  //
  // Errors:
  //   kDeadlineExceeded  names the keys that did not come within `timeout`.
  virtual absl::StatusOr<std::vector<std::string>> Get(
      const std::vector<std::string>& keys, absl::Duration timeout) = 0;
};

struct GroupSpec {
  std::string name;  // Unique in the job and world version.
  int rank = 0;
  int size = 1;
  absl::Duration timeout = absl::Seconds(30);  // Of every operation.
};

// Creates this rank's end of a group; returns when all ranks are connected.
//
// Errors: as Communicator; kFailedPrecondition when the backend is not usable
// here.
using CommunicatorFactory =
    std::function<absl::StatusOr<std::unique_ptr<Communicator>>(
        const GroupSpec& group, Rendezvous* rendezvous)>;

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_COLLECTIVE_COMMUNICATOR_H_
