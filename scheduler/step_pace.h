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
  // `step` is the newest step known at `now`; neither goes back.
  void Note(int64_t step, absl::Time now);

  // Two reports were half a second apart or more.
  bool known() const { return known_; }

  // Steps that are begun in `span` at the pace of late, rounded up; 0 while it
  // is not known. A job that stands still may go on as fast as before: what it
  // made counts, by half with every report.
  int64_t StepsIn(absl::Duration span) const;

 private:
  bool known_ = false;
  int64_t step_ = -1;
  absl::Time time_ = absl::InfinitePast();
  double per_second_ = 0;
};

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_STEP_PACE_H_
