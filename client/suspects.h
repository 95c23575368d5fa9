// Servers that recently let a step run out of its budget.
//
// Layer: client. May include common/.
// A suspect's layers fall back without waiting, so that a server whose packets
// vanish makes one step longer, not every step. Once a second a step's traffic
// is sent to it all the same, unwaited: the probe (PROTOCOL.md 5).

#ifndef KRONSERVE_CLIENT_SUSPECTS_H_
#define KRONSERVE_CLIENT_SUSPECTS_H_

#include <map>
#include <set>
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
    bool suspect = false;  // False: it came back.
    std::string reason;
  };

  bool Contains(const std::string& server) const {
    return since_.count(server) > 0;
  }

  // Makes `server` a suspect; its first probe is due one interval later.
  void Add(const std::string& server, absl::Time now,
           const std::string& reason);

  // As Add(), on another rank's word: TakeFound() does not return it, or two
  // ranks would keep each other's suspicion alive for ever.
  void AddShared(const std::string& server, absl::Time now);

  // Servers that Add() made suspects since the last call.
  std::set<std::string> TakeFound();

  // `server` answered: it is no suspect any more.
  void Clear(const std::string& server);

  // True when a probe of the suspect `server` is due; then the next one is due
  // one interval later.
  bool TakeProbe(const std::string& server, absl::Time now);

  // Changes since the last call, in order: one log line each.
  std::vector<Change> TakeChanges();

 private:
  std::map<std::string, absl::Time> since_;  // Suspected or last probed.
  std::set<std::string> found_;
  std::vector<Change> changes_;
};

}  // namespace kronserve::client

#endif  // KRONSERVE_CLIENT_SUSPECTS_H_
