// A clock that tests move by hand.

#ifndef KRONSERVE_COMMON_TESTING_FAKE_CLOCK_H_
#define KRONSERVE_COMMON_TESTING_FAKE_CLOCK_H_

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace kronserve::testing {

class FakeClock final : public Clock {
 public:
  absl::Time Now() const override {
    MutexLock lock(&mu_);
    return now_;
  }
  void Advance(absl::Duration by) {
    MutexLock lock(&mu_);
    now_ += by;
  }

 private:
  mutable Mutex mu_;
  absl::Time now_ ABSL_GUARDED_BY(mu_) = absl::UnixEpoch() + absl::Hours(1);
};

}  // namespace kronserve::testing

#endif  // KRONSERVE_COMMON_TESTING_FAKE_CLOCK_H_
