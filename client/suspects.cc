#include "client/suspects.h"

#include <utility>

namespace kronserve::client {

void Suspects::Add(const std::string& server, absl::Time now,
                   const std::string& reason) {
  if (!since_.emplace(server, now).second) return;
  found_.insert(server);
  changes_.push_back({server, true, reason});
}

void Suspects::AddShared(const std::string& server, absl::Time now) {
  if (!since_.emplace(server, now).second) return;
  changes_.push_back({server, true, "another rank lost it"});
}

std::set<std::string> Suspects::TakeFound() {
  return std::exchange(found_, {});
}

void Suspects::Clear(const std::string& server) {
  if (since_.erase(server) == 0) return;
  changes_.push_back({server, false, ""});
}

bool Suspects::TakeProbe(const std::string& server, absl::Time now) {
  const auto it = since_.find(server);
  if (it == since_.end() || now - it->second < kProbeInterval) return false;
  it->second = now;
  return true;
}

std::vector<Suspects::Change> Suspects::TakeChanges() {
  return std::exchange(changes_, {});
}

}  // namespace kronserve::client
