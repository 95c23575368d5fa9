// The key-value board where the ranks of one world find one another.
//
// Layer: scheduler. May include common/, proto/ and placement/.
// It is not stored: ranks that meet while the scheduler restarts meet again.

#ifndef KRONSERVE_SCHEDULER_RENDEZVOUS_BOARD_H_
#define KRONSERVE_SCHEDULER_RENDEZVOUS_BOARD_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kronserve/v1/scheduler.pb.h"

namespace kronserve::scheduler {

inline constexpr int64_t kMaxRendezvousKeyBytes = 256;
inline constexpr int64_t kMaxRendezvousValueBytes = 64 << 10;
inline constexpr int64_t kMaxRendezvousEntries = 16384;
inline constexpr int64_t kMaxRendezvousTotalBytes = 32 << 20;
// Below the 4 MiB that a client receives at most.
inline constexpr int64_t kMaxRendezvousReplyBytes = 3 << 20;

// Thread safety: none.
class RendezvousBoard {
 public:
  // Adds or replaces.
  //
  // Errors (nothing changes):
  //   kInvalidArgument    empty or long key.
  //   kResourceExhausted  a value above 64 KiB, or the board is full; names
  //                       the numbers.
  absl::Status Put(const std::string& key, const std::string& value);

  // Those of the keys that are there.
  //
  // Errors:
  //   kResourceExhausted  the values are above 3 MiB together; ask for fewer.
  absl::StatusOr<v1::GetRendezvousResponse> Get(
      const v1::GetRendezvousRequest& request) const;

  void Clear();

 private:
  std::map<std::string, std::string> values_;
  int64_t total_bytes_ = 0;
};

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_RENDEZVOUS_BOARD_H_
