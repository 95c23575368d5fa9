// What the scheduler must remember over a restart, behind one interface.
//
// Layer: scheduler. May include common/, proto/ and placement/.
// Backends: memory/ (tests and throw-away clusters), sqlite/ (one file) and
// etcd/ (several schedulers).
// Values are small: jobs and assignments, never leases, heartbeats or tensors.

#ifndef KRONSERVE_SCHEDULER_STATE_STORE_H_
#define KRONSERVE_SCHEDULER_STATE_STORE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kronserve::scheduler {

struct StateWrite {
  std::string key;
  // Absent: the key is erased; a missing key is fine.
  std::optional<std::string> value;
};
using WriteBatch = std::vector<StateWrite>;
using StateMap = std::map<std::string, std::string>;

// A durable map from keys to values with one writer.
//
// Thread safety: none; one thread uses it at a time.
class StateStore {
 public:
  virtual ~StateStore() = default;

  // "memory", "sqlite:PATH" or "etcd:ENDPOINTS".
  virtual std::string Describe() const = 0;

  // A number above that of every earlier leader, where the store gives one; 0
  // where it does not.
  virtual uint64_t leadership() const { return 0; }

  // Errors:
  //   kDataLoss     what is stored cannot be read.
  //   kUnavailable  the store cannot be reached; try again.
  virtual absl::StatusOr<StateMap> Load() = 0;

  // Applies all writes in order, or none. On OK they survive a power cut.
  //
  // Errors:
  //   kUnavailable  nothing was written (disk full, file gone), or it is not
  //                 known whether; try again.
  //   kAborted      another scheduler leads; nothing was written.
  virtual absl::Status Write(const WriteBatch& batch) = 0;
};

// Takes the next leadership number: the store's leadership() or, if that is not
// above it, one more than the stored one; stored before it is returned. Called
// once per start.
//
//   loaded  if not null, gets what was stored before.
//
// Errors: as Load() and Write(); kDataLoss also when the stored number cannot
// be read.
absl::StatusOr<uint64_t> RaiseTerm(StateStore* store,
                                   StateMap* loaded = nullptr);

// The key of the leadership number, a decimal.
inline constexpr char kTermKey[] = "term";

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_STATE_STORE_H_
