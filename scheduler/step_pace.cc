#include "scheduler/step_pace.h"

#include <algorithm>
#include <cmath>

namespace kronserve::scheduler {
namespace {

// Reports of several ranks come close together and say little of the pace.
constexpr absl::Duration kShortest = absl::Milliseconds(500);

}  // namespace

void StepPace::Note(int64_t step, absl::Time now) {
  if (time_ != absl::InfinitePast()) {
    if (now - time_ < kShortest) return;
    per_second_ =
        std::max(per_second_ / 2, static_cast<double>(step - step_) /
                                      absl::ToDoubleSeconds(now - time_));
    known_ = true;
  }
  step_ = step;
  time_ = now;
}

int64_t StepPace::StepsIn(absl::Duration span) const {
  return static_cast<int64_t>(
      std::ceil(per_second_ * absl::ToDoubleSeconds(span)));
}

}  // namespace kronserve::scheduler
