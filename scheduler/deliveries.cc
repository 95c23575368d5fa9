#include "scheduler/deliveries.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace kronserve::scheduler {

void Deliveries::SetTargets(const std::vector<v1::ServerAddress>& servers,
                            uint64_t version) {
  std::map<std::string, Target> old;
  old.swap(targets_);
  version_ = version;
  for (const v1::ServerAddress& server : servers) {
    Target& target = targets_[server.name()];
    target.server = server;
    const auto known = old.find(server.name());
    if (known != old.end() &&
        known->second.server.incarnation() == server.incarnation()) {
      target.confirmed = known->second.confirmed;
    }
  }
}

void Deliveries::AddObserver(const v1::ServerAddress& server) {
  Target& target = targets_[server.name()];
  if (target.server.incarnation() == server.incarnation()) return;
  target = Target();
  target.server = server;
  target.required = false;
}

void Deliveries::Release(const std::string& server) {
  const auto found = targets_.find(server);
  if (found == targets_.end()) return;
  found->second.required = false;
  if (found->second.confirmed >= version_) targets_.erase(found);
}

std::vector<v1::ServerAddress> Deliveries::Due(absl::Time now) const {
  std::vector<v1::ServerAddress> due;
  for (const auto& [name, target] : targets_) {
    if (target.confirmed < version_ && target.retry.Due(now)) {
      due.push_back(target.server);
    }
  }
  return due;
}

void Deliveries::Sent(const std::string& server, absl::Time now) {
  const auto found = targets_.find(server);
  if (found == targets_.end()) return;
  found->second.last_sent = now;
  found->second.retry.Sent(now);
}

void Deliveries::Confirm(const v1::ServerAddress& server, uint64_t version) {
  Target* target = Find(server);
  if (target == nullptr) return;
  target->confirmed = std::max(target->confirmed, version);
  target->retry.Succeeded(absl::InfinitePast());
  target->last_error.clear();
  if (target->confirmed >= version_ && !target->required) {
    targets_.erase(server.name());
  }
}

void Deliveries::Fail(const v1::ServerAddress& server,
                      const absl::Status& status, absl::Time now) {
  Target* target = Find(server);
  if (target == nullptr) return;
  target->last_error = std::string(status.message());
  target->retry.Failed(now);
}

void Deliveries::Lags(const v1::ServerAddress& server, uint64_t version,
                      absl::Time now, absl::Duration patience) {
  Target* target = Find(server);
  if (target == nullptr || now - target->last_sent < patience) return;
  target->confirmed = std::min(target->confirmed, version);
  // After a failure its own backoff stands.
  if (target->confirmed < version_ && target->retry.failures() == 0) {
    target->retry.Succeeded(now);
  }
}

uint64_t Deliveries::Confirmed(const std::string& server) const {
  const auto found = targets_.find(server);
  return found == targets_.end() ? 0 : found->second.confirmed;
}

bool Deliveries::done() const {
  return std::all_of(targets_.begin(), targets_.end(), [this](const auto& t) {
    return !t.second.required || t.second.confirmed >= version_;
  });
}

bool Deliveries::settled() const {
  return std::all_of(targets_.begin(), targets_.end(), [this](const auto& t) {
    return t.second.confirmed >= version_;
  });
}

std::vector<v1::ServerAddress> Deliveries::servers() const {
  std::vector<v1::ServerAddress> servers;
  for (const auto& [name, target] : targets_) servers.push_back(target.server);
  return servers;
}

std::vector<std::string> Deliveries::Unconfirmed(
    const std::string& what) const {
  std::vector<std::string> lines;
  for (const auto& [name, target] : targets_) {
    if (!target.required || target.confirmed >= version_) continue;
    lines.push_back(absl::StrCat(
        "server '", name, "' has not confirmed ", what, " ", version_,
        target.last_error.empty()
            ? ""
            : absl::StrCat(" (", target.last_error, ")")));
  }
  return lines;
}

Deliveries::Target* Deliveries::Find(const v1::ServerAddress& server) {
  const auto found = targets_.find(server.name());
  if (found == targets_.end()) return nullptr;
  if (found->second.server.incarnation() != server.incarnation()) {
    return nullptr;
  }
  return &found->second;
}

}  // namespace kronserve::scheduler
