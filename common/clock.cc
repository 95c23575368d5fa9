#include "common/clock.h"

#include <time.h>

namespace kronserve {
namespace {

class BootTimeClock final : public Clock {
 public:
  absl::Time Now() const override {
    timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return absl::TimeFromTimespec(now);
  }
};

}  // namespace

const Clock& SteadyClock() {
  static const BootTimeClock clock;
  return clock;
}

}  // namespace kronserve
