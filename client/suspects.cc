#include "client/suspects.h"

#include <algorithm>
#include <utility>

namespace kronserve::client {

bool Suspects::IsSilent(const std::string& server) const {
  const auto it = held_.find(server);
  return it != held_.end() && it->second.silent;
}

void Suspects::Add(const std::string& server, absl::Time now,
                   const std::string& reason) {
  const auto [it, added] = held_.try_emplace(server, Suspect{now, true});
  it->second.silent = true;
  if (added) changes_.push_back({server, true, reason});
}

void Suspects::Heard(const std::string& server) {
  const auto it = held_.find(server);
  if (it != held_.end()) it->second.silent = false;
}

void Suspects::Clear(const std::string& server) {
  if (held_.erase(server) == 0) return;
  changes_.push_back({server, false, ""});
}

void Suspects::KeepOnly(const std::vector<std::string>& servers) {
  for (auto it = held_.begin(); it != held_.end();) {
    const bool keep =
        std::binary_search(servers.begin(), servers.end(), it->first);
    it = keep ? std::next(it) : held_.erase(it);
  }
}

bool Suspects::TakeProbe(const std::string& server, absl::Time now) {
  const auto it = held_.find(server);
  if (it == held_.end() || now - it->second.since < kProbeInterval) {
    return false;
  }
  it->second.since = now;
  return true;
}

std::vector<Suspects::Change> Suspects::TakeChanges() {
  return std::exchange(changes_, {});
}

}  // namespace kronserve::client
