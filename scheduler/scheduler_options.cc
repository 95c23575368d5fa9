#include "scheduler/scheduler_options.h"

#include "absl/strings/str_cat.h"

namespace kronserve::scheduler {

void AddSchedulerOptions(OptionSet* set, SchedulerOptions* options) {
  set->Add("listen", &options->listen,
           "host:port to serve on; port 0 is any free one");
  set->Add("insecure-bind", &options->insecure_bind,
           "serve without TLS on an address that is not loopback");
  set->Add("store", &options->store,
           "where jobs and assignments are kept: a file that survives a "
           "restart, or this process's memory",
           {"sqlite", "memory"});
  set->Add("state-file", &options->state_file,
           "file of the sqlite store; created when missing");
  set->Add("heartbeat", &options->heartbeat,
           "how often servers and ranks report");
  set->Add("lease", &options->lease,
           "silence after which a member counts as dead (one heartbeat is "
           "added here)");
  set->Add("job-ttl", &options->job_ttl,
           "a job without living ranks is freed after this");
  set->Add("address-file", &options->address_file,
           "file that gets the address once it is known");
  set->Check([options]() -> std::string {
    if (options->lease >= 3 * options->heartbeat) return "";
    return absl::StrCat("lease ", absl::FormatDuration(options->lease),
                        " is shorter than 3 heartbeats of ",
                        absl::FormatDuration(options->heartbeat),
                        ": one lost packet would move layers");
  });
  set->Check([options]() -> std::string {
    if (options->heartbeat >= absl::Milliseconds(10)) return "";
    return absl::StrCat("heartbeat ", absl::FormatDuration(options->heartbeat),
                        " is below 10ms");
  });
  set->Check([options]() -> std::string {
    if (options->job_ttl >= options->lease) return "";
    return absl::StrCat("job-ttl ", absl::FormatDuration(options->job_ttl),
                        " is shorter than lease ",
                        absl::FormatDuration(options->lease));
  });
  set->Check([options]() -> std::string {
    return options->store == "sqlite" && options->state_file.empty()
               ? "state-file is empty, but store is sqlite"
               : "";
  });
}

}  // namespace kronserve::scheduler
