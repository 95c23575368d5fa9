// What a scheduler takes from others at the most.
//
// Layer: scheduler. May include common/, proto/ and placement/.

#ifndef KRONSERVE_SCHEDULER_LIMITS_H_
#define KRONSERVE_SCHEDULER_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace kronserve::scheduler {

inline constexpr int kMaxWorldSize = 65536;
inline constexpr size_t kMaxJobs = 1000;
// Of steps, world versions, epochs and terms: leaves room for margins and for
// counting on in 64 bits.
inline constexpr int64_t kMaxNumber = int64_t{1} << 62;

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_LIMITS_H_
