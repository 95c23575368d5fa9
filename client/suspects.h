// Servers that recently let a step run out of its budget.
//
// Layer: client. May include common/.
// A suspect's layers fall back without waiting, so that a server whose packets
// vanish makes one step longer, not every step. Once a second a step's traffic
// is sent to it all the same, unwaited: the probe (PROTOCOL.md 5).
//
//   (none) --Add--> SILENT <--Add / Heard--> HEARD --Clear--> (none)
//
// A rank alone goes no further than HEARD: a server waits for the commits of
// all ranks, so the vote ends a suspicion for all in the same step
// (silent_owners.h).

#ifndef KRONSERVE_CLIENT_SUSPECTS_H_
#define KRONSERVE_CLIENT_SUSPECTS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace kronserve::client {

// Time between two probes of one server, and how long a probe may take.
inline constexpr absl::Duration kProbeInterval = absl::Seconds(1);

// Thread safety: none.
class Suspects {
 public:
  struct Change {
    std::string server;
    bool suspect = false;  // False: all ranks heard it again.
    std::string reason;
  };

  bool Contains(const std::string& server) const {
    return held_.count(server) > 0;
  }
  // A suspect that has not answered this rank since.
  bool IsSilent(const std::string& server) const;

  // Makes `server` a silent suspect. Of a new one the first probe is due one
  // interval later.
  void Add(const std::string& server, absl::Time now,
           const std::string& reason);

  // `server` answered.
  void Heard(const std::string& server);

  // `server` is no suspect any more.
  void Clear(const std::string& server);

  // Forgets suspects that are not in `servers`, which is sorted.
  void KeepOnly(const std::vector<std::string>& servers);

  // True when a probe of the suspect `server` is due; then the next one is due
  // one interval later.
  bool TakeProbe(const std::string& server, absl::Time now);

  // Changes since the last call, in order: one log line each.
  std::vector<Change> TakeChanges();

 private:
  struct Suspect {
    absl::Time since;  // Suspected or last probed.
    bool silent = true;
  };

  std::map<std::string, Suspect> held_;
  std::vector<Change> changes_;
};

}  // namespace kronserve::client

#endif  // KRONSERVE_CLIENT_SUSPECTS_H_
