// Time as a dependency: cores get `now` handed in, processes own one Clock.
//
// Layer: common. May include nothing else of this repository.

#ifndef KRONSERVE_COMMON_CLOCK_H_
#define KRONSERVE_COMMON_CLOCK_H_

#include "absl/time/time.h"

namespace kronserve {

// Source of time points for leases and deadlines.
//
// Thread safety: thread-safe.
// Invariants:    never goes back; counts time in which the machine slept, so
//                that a lease cannot be stretched by a suspended process. The
//                zero is arbitrary: compare only times of one process.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

// The machine's boot-time clock. Lives for the whole process.
const Clock& SteadyClock();

}  // namespace kronserve

#endif  // KRONSERVE_COMMON_CLOCK_H_
