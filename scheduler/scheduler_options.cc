#include "scheduler/scheduler_options.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace kronserve::scheduler {

absl::StatusOr<StoreChoice> ParseStore(const std::string& store) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(store, absl::MaxSplits(':', 1));
  StoreChoice choice;
  choice.where = std::string(parts.second);
  if (store == "memory") return choice;
  choice.kind = StoreChoice::Kind::kSqlite;
  if (parts.first == "sqlite" && !choice.where.empty()) return choice;
  choice.kind = StoreChoice::Kind::kEtcd;
  if (parts.first == "etcd" && !choice.where.empty()) return choice;
  return absl::InvalidArgumentError(
      absl::StrCat("store is '", store,
                   "', allowed are memory, sqlite:PATH and "
                   "etcd:HOST:PORT[,HOST:PORT...]"));
}

void AddSchedulerOptions(OptionSet* set, SchedulerOptions* options) {
  set->Add("listen", &options->listen,
           "host:port to serve on; port 0 is any free one");
  set->Add("insecure-bind", &options->insecure_bind,
           "serve without TLS on an address that is not loopback");
  set->Add("advertise", &options->advertise,
           "host:port that members and other schedulers use; default: where it "
           "listens");
  set->Add("store", &options->store,
           "where jobs and assignments are kept: memory, sqlite:PATH (a file, "
           "created when missing) or etcd:HOST:PORT,... (for several "
           "schedulers, of which one leads)");
  set->Add("etcd-prefix", &options->etcd_prefix,
           "of all keys in etcd; schedulers with one prefix stand in for one "
           "another");
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
    return std::string(ParseStore(options->store).status().message());
  });
  set->Check([options]() -> std::string {
    return options->etcd_prefix.empty() ? "etcd-prefix is empty" : "";
  });
}

}  // namespace kronserve::scheduler
