// When a call to a server that has to succeed is made next.
//
// Layer: scheduler. May include common/, proto/ and placement/.

#ifndef KRONSERVE_SCHEDULER_RETRY_H_
#define KRONSERVE_SCHEDULER_RETRY_H_

#include <algorithm>

#include "absl/time/time.h"

namespace kronserve::scheduler {

inline constexpr absl::Duration kFirstRetry = absl::Milliseconds(250);

// Due at once, then as the last attempt says.
//
// Thread safety: none.
class Retry {
 public:
  bool Due(absl::Time now) const { return now >= next_; }

  // The next attempt waits for the end of this one, or 10 s.
  void Sent(absl::Time now) { next_ = now + absl::Seconds(10); }

  // Due after 0.25 s, doubled with every failure up to 2 s.
  void Failed(absl::Time now) {
    next_ = now + kFirstRetry * (1 << std::min(failures_, 3));
    ++failures_;
  }

  void Succeeded(absl::Time next) {
    next_ = next;
    failures_ = 0;
  }

  // Since the last success.
  int failures() const { return failures_; }

 private:
  absl::Time next_ = absl::InfinitePast();
  int failures_ = 0;
};

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_RETRY_H_
