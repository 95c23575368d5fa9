// How fast a job steps, so that a planned move starts where ranks will be.
//
// Layer: scheduler. May include common/, proto/ and placement/.

#ifndef KRONSERVE_SCHEDULER_STEP_PACE_H_
#define KRONSERVE_SCHEDULER_STEP_PACE_H_

#include <cstdint>

#include "absl/time/time.h"

namespace kronserve::scheduler {

// Thread safety: none.
class StepPace {
 public:
  // `step` is the newest step at `now`; neither goes back.
  void Note(int64_t step, absl::Time now);

  // Steps that are begun in `span` at the pace of late, rounded up; 0 until
  // two reports were half a second apart.
  int64_t StepsIn(absl::Duration span) const;

 private:
  int64_t step_ = -1;
  absl::Time time_ = absl::InfinitePast();
  double per_second_ = 0;
};

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_STEP_PACE_H_
