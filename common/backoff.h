// Waiting times between retries.
//
// Layer: common. May include nothing else of this repository.

#ifndef KRONSERVE_COMMON_BACKOFF_H_
#define KRONSERVE_COMMON_BACKOFF_H_

#include <algorithm>
#include <random>

#include "absl/time/time.h"

namespace kronserve {

// Exponential backoff with full jitter: the k-th delay is uniform between half
// and the whole of min(initial * 2^k, longest).
//
// Thread safety: none.
class Backoff {
 public:
  // The same seed gives the same delays.
  Backoff(absl::Duration initial, absl::Duration longest, uint64_t seed)
      : initial_(initial), longest_(longest), next_(initial), random_(seed) {}

  absl::Duration Next() {
    const double share =
        std::uniform_real_distribution<double>(0.5, 1.0)(random_);
    const absl::Duration delay = share * next_;
    next_ = std::min(2 * next_, longest_);
    return delay;
  }
  void Reset() { next_ = initial_; }

 private:
  absl::Duration initial_;
  absl::Duration longest_;
  absl::Duration next_;
  std::mt19937_64 random_;
};

}  // namespace kronserve

#endif  // KRONSERVE_COMMON_BACKOFF_H_
