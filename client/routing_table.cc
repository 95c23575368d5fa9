#include "client/routing_table.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace kronserve::client {
namespace {

// Epochs kept: enough for every layer whose from_step is still ahead.
constexpr size_t kMostHeld = 16;

}  // namespace

absl::Status RoutingTable::Check(const v1::Assignment& assignment) const {
  if (assignment.job() != job_) {
    return absl::InvalidArgumentError(
        absl::StrCat("assignment of job '", assignment.job(),
                     "' reached a rank of job '", job_, "'"));
  }
  if (assignment.epoch() < 1 || assignment.owners_size() != num_layers_) {
    return absl::InvalidArgumentError(
        absl::StrCat("assignment of epoch ", assignment.epoch(), " names ",
                     assignment.owners_size(), " layers, job '", job_, "' has ",
                     num_layers_));
  }
  std::set<std::string> known;
  for (const v1::ServerAddress& server : assignment.servers()) {
    if (!server.address().empty()) known.insert(server.name());
  }
  for (int layer = 0; layer < num_layers_; ++layer) {
    const v1::LayerOwner& owner = assignment.owners(layer);
    const auto reachable = [&known](const std::string& server) {
      return server.empty() || known.count(server) > 0;
    };
    if (owner.layer() == layer && reachable(owner.server()) &&
        reachable(owner.source())) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "assignment of epoch ", assignment.epoch(), ": entry ", layer,
        " names layer ", owner.layer(), ", server '", owner.server(),
        "' and source '", owner.source(), "', expected layer ", layer,
        " and servers with an address"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> RoutingTable::Adopt(const v1::Assignment& assignment) {
  KRONSERVE_RETURN_IF_ERROR(Check(assignment));
  if (assignment.epoch() <= held_epoch() || assignment.term() < term_) {
    return false;
  }
  term_ = assignment.term();
  held_[assignment.epoch()] = assignment;
  if (active_ == 0) active_ = assignment.epoch();
  while (held_.size() > kMostHeld && held_.begin()->first < active_) {
    held_.erase(held_.begin());
  }
  return true;
}

void RoutingTable::Activate(uint64_t agreed) {
  auto after = held_.upper_bound(agreed);
  if (after == held_.begin()) return;
  active_ = std::max(active_, std::prev(after)->first);
}

uint64_t RoutingTable::held_epoch() const {
  return held_.empty() ? 0 : held_.rbegin()->first;
}

std::string RoutingTable::Owner(int layer, int64_t step, uint64_t epoch) const {
  for (auto it = held_.upper_bound(epoch); it != held_.begin();) {
    --it;
    const v1::LayerOwner& owner = it->second.owners(layer);
    if (owner.from_step() <= step) return owner.server();
    if (!owner.source().empty()) return owner.source();
  }
  return NewestOwner(layer);
}

std::string RoutingTable::NewestOwner(int layer) const {
  return held_.empty() ? "" : held_.rbegin()->second.owners(layer).server();
}

std::string RoutingTable::NewestSource(int layer) const {
  return held_.empty() ? "" : held_.rbegin()->second.owners(layer).source();
}

bool RoutingTable::NewestNeeds(const std::string& server) const {
  if (held_.empty()) return false;
  const auto& owners = held_.rbegin()->second.owners();
  return std::any_of(
      owners.begin(), owners.end(), [&](const v1::LayerOwner& owner) {
        return owner.server() == server || owner.source() == server;
      });
}

std::vector<std::string> RoutingTable::Owners(int64_t step,
                                              uint64_t epoch) const {
  std::set<std::string> servers;
  for (int layer = 0; layer < num_layers_; ++layer) {
    std::string server = Owner(layer, step, epoch);
    if (!server.empty()) servers.insert(std::move(server));
  }
  return {servers.begin(), servers.end()};
}

std::string RoutingTable::Address(const std::string& server) const {
  for (auto it = held_.rbegin(); it != held_.rend(); ++it) {
    for (const v1::ServerAddress& known : it->second.servers()) {
      if (known.name() == server) return known.address();
    }
  }
  return "";
}

}  // namespace kronserve::client
