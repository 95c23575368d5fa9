// Who has to hear of a version of something, and who has confirmed it.
//
// Layer: scheduler. May include common/, proto/ and placement/.
// Used for assignments (version: epoch) and for dropped jobs (version: world
// version); both are idempotent, so sending twice is harmless.

#ifndef KRONSERVE_SCHEDULER_DELIVERIES_H_
#define KRONSERVE_SCHEDULER_DELIVERIES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kronserve/v1/job.pb.h"
#include "scheduler/retry.h"

namespace kronserve::scheduler {

// Delivers the newest version to a set of servers, again and again until each
// has confirmed it.
//
// Thread safety: none.
class Deliveries {
 public:
  // Replaces the targets: `servers` have to confirm `version`. Confirmations
  // of a server that stays (same incarnation) are kept.
  void SetTargets(const std::vector<v1::ServerAddress>& servers,
                  uint64_t version);

  // Adds a server that shall hear of the version but need not confirm it.
  // Known targets stay as they are.
  void AddObserver(const v1::ServerAddress& server);

  // The server need no longer confirm: it becomes an observer.
  void Release(const std::string& server);

  void Remove(const std::string& server) { targets_.erase(server); }

  // Targets whose next attempt is due.
  std::vector<v1::ServerAddress> Due(absl::Time now) const;

  // An attempt was started.
  void Sent(const std::string& server, absl::Time now);

  // `server` holds `version`. An observer that is up to date is removed.
  void Confirm(const v1::ServerAddress& server, uint64_t version);

  // The attempt failed.
  void Fail(const v1::ServerAddress& server, const absl::Status& status,
            absl::Time now);

  // `server` shows an older version (0: none). If the last attempt is older
  // than `patience`, what it confirmed is no longer true.
  void Lags(const v1::ServerAddress& server, uint64_t version, absl::Time now,
            absl::Duration patience);

  // Version that `server` has confirmed; 0 if none.
  uint64_t Confirmed(const std::string& server) const;

  // Whether `server` is a target or observer.
  bool Has(const std::string& server) const {
    return targets_.count(server) > 0;
  }

  uint64_t version() const { return version_; }
  // Whether every target that has to has confirmed.
  bool done() const;
  // Whether observers have, too.
  bool settled() const;
  bool empty() const { return targets_.empty(); }
  std::vector<v1::ServerAddress> servers() const;

  // "server 's1' has not confirmed <what> 3 (last error)", one line each.
  std::vector<std::string> Unconfirmed(const std::string& what) const;

 private:
  struct Target {
    v1::ServerAddress server;
    bool required = true;
    uint64_t confirmed = 0;
    std::string last_error;
    absl::Time last_sent = absl::InfinitePast();
    Retry retry;
  };

  // Null when `server` is no target, or is another incarnation of it.
  Target* Find(const v1::ServerAddress& server);

  uint64_t version_ = 0;
  std::map<std::string, Target> targets_;
};

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_DELIVERIES_H_
