// What a scheduler process is told at its start.
//
// Layer: scheduler. May include common/, proto/ and placement/.

#ifndef KRONSERVE_SCHEDULER_SCHEDULER_OPTIONS_H_
#define KRONSERVE_SCHEDULER_SCHEDULER_OPTIONS_H_

#include <string>

#include "absl/time/time.h"
#include "common/options.h"

namespace kronserve::scheduler {

struct SchedulerOptions {
  std::string listen = "127.0.0.1:7710";  // host:port; port 0 is any.
  bool insecure_bind = false;
  std::string store = "sqlite";  // or "memory"
  std::string state_file = "kronserve-scheduler.db";
  absl::Duration heartbeat = absl::Seconds(1);
  absl::Duration lease = absl::Seconds(5);
  absl::Duration job_ttl = absl::Hours(24);
  std::string address_file;  // Gets the address; empty: none.
};

// Declares every flag of kronserve-scheduler, and their relations. `options`
// outlives `set`.
void AddSchedulerOptions(OptionSet* set, SchedulerOptions* options);

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_SCHEDULER_OPTIONS_H_
