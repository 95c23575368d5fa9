// What a scheduler process is told at its start.
//
// Layer: scheduler. May include common/, proto/ and placement/.

#ifndef KRONSERVE_SCHEDULER_SCHEDULER_OPTIONS_H_
#define KRONSERVE_SCHEDULER_SCHEDULER_OPTIONS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/options.h"

namespace kronserve::scheduler {

struct SchedulerOptions {
  std::string listen = "127.0.0.1:7710";  // host:port; port 0 is any.
  // host:port by which members and other schedulers reach it; empty: where it
  // listens.
  std::string advertise;
  bool insecure_bind = false;
  // "memory", "sqlite:PATH" or "etcd:HOST:PORT,..."
  std::string store = "sqlite:kronserve-scheduler.db";
  std::string etcd_prefix = "/kronserve/";
  absl::Duration heartbeat = absl::Seconds(1);
  absl::Duration lease = absl::Seconds(5);
  absl::Duration job_ttl = absl::Hours(24);
  std::string address_file;  // Gets the address; empty: none.
};

struct StoreChoice {
  enum class Kind { kMemory, kSqlite, kEtcd };
  Kind kind = Kind::kMemory;
  std::string where;  // Path, or endpoints.
};

// Reads SchedulerOptions::store.
//
// Errors:
//   kInvalidArgument  it is none of the three, or says no path or endpoint.
absl::StatusOr<StoreChoice> ParseStore(const std::string& store);

// Declares every flag of kronserve-scheduler, and their relations. `options`
// outlives `set`.
void AddSchedulerOptions(OptionSet* set, SchedulerOptions* options);

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_SCHEDULER_OPTIONS_H_
