// What a server takes from others at the most.
//
// Layer: server. May include common/.

#ifndef KRONSERVE_SERVER_LIMITS_H_
#define KRONSERVE_SERVER_LIMITS_H_

#include <cstdint>

namespace kronserve::server {

// Of steps and of counts of rounds: leaves room for margins and for counting on
// in 64 bits. The scheduler has the same limit.
inline constexpr int64_t kMaxStep = int64_t{1} << 62;

inline bool IsStep(int64_t step) { return step >= 0 && step <= kMaxStep; }
// As IsStep(), or -1 for none.
inline bool IsStepOrNone(int64_t step) { return step == -1 || IsStep(step); }

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_LIMITS_H_
