#include "scheduler/membership.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "placement/job_validation.h"
#include "scheduler/limits.h"

namespace kronserve::scheduler {
namespace {

// How long a dead server is still shown.
constexpr absl::Duration kShowDead = absl::Hours(1);

bool IsCoefficient(double value) { return std::isfinite(value) && value >= 0; }

absl::Status Validate(const v1::RegisterServerRequest& request) {
  std::vector<std::string> faults;
  const size_t name_bytes = request.name().size();
  if (name_bytes < 1 || name_bytes > placement::kMaxNameBytes) {
    faults.push_back(absl::StrCat("name has ", name_bytes,
                                  " bytes, allowed are 1 to ",
                                  placement::kMaxNameBytes));
  }
  const size_t colon = request.address().rfind(':');
  if (colon == std::string::npos || colon == 0 ||
      colon + 1 == request.address().size()) {
    faults.push_back(
        absl::StrCat("address '", request.address(), "' is not host:port"));
  }
  if (request.incarnation() == 0) faults.push_back("incarnation is 0");
  if (request.memory_bytes() < 1) {
    faults.push_back(absl::StrCat("memory_bytes is ", request.memory_bytes(),
                                  ", a server needs memory to own layers"));
  }
  if (request.term_seen() > static_cast<uint64_t>(kMaxNumber)) {
    faults.push_back(absl::StrCat("term_seen is ", request.term_seen(),
                                  ", above ", kMaxNumber,
                                  " nothing can follow"));
  }
  const v1::CostCurve& cost = request.cost();
  if (!IsCoefficient(cost.seconds()) || !IsCoefficient(cost.seconds_per_d2()) ||
      !IsCoefficient(cost.seconds_per_d3())) {
    faults.push_back(absl::StrCat(
        "cost curve (", cost.seconds(), ", ", cost.seconds_per_d2(), ", ",
        cost.seconds_per_d3(), ") is not finite and at least 0"));
  }
  if (faults.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("server '", request.name().substr(0, 64),
                   "': ", absl::StrJoin(faults, "; ")));
}

// A server that has not measured itself counts as the published fit.
placement::CostCurve CurveOf(const v1::CostCurve& cost) {
  const placement::CostCurve curve{cost.seconds(), cost.seconds_per_d2(),
                                   cost.seconds_per_d3()};
  const bool measured =
      curve.seconds + curve.seconds_per_d2 + curve.seconds_per_d3 > 0;
  return measured ? curve : placement::CostCurve();
}

}  // namespace

absl::StatusOr<Membership::Registration> Membership::Register(
    const v1::RegisterServerRequest& request, absl::Time now) {
  KRONSERVE_RETURN_IF_ERROR(Validate(request));
  Registration registration;
  const auto found = members_.find(request.name());
  if (found != members_.end()) {
    const ServerMember& old = found->second;
    registration.replaced = old.address.incarnation() != request.incarnation();
    if (registration.replaced && !old.dead && !old.may_leave &&
        old.address.address() != request.address()) {
      return absl::AlreadyExistsError(absl::StrCat(
          "server name '", request.name(), "' is held by a live server at ",
          old.address.address(), ", last heard ",
          absl::FormatDuration(now - old.last_heard),
          " ago: choose another name, or wait until its lease ends in ",
          absl::FormatDuration(old.lease_end - now)));
    }
    registration.is_new = registration.replaced || !old.registered;
    registration.joined = registration.replaced || old.dead;
  } else {
    registration.is_new = registration.joined = true;
  }
  ServerMember& member = members_[request.name()];
  member.address.set_name(request.name());
  member.address.set_address(request.address());
  member.address.set_incarnation(request.incarnation());
  member.registered = true;
  member.must_register = false;
  member.dead = false;
  member.memory_bytes = request.memory_bytes();
  member.refresh_threads = std::max<int64_t>(1, request.refresh_threads());
  member.curve = CurveOf(request.cost());
  if (registration.replaced) {
    member.load.Clear();
    member.wants_drain = member.may_leave = false;
    member.state_recovery = v1::STATE_RECOVERY_UNSPECIFIED;
    member.state_recovery_message.clear();
  }
  member.last_heard = now;
  member.lease_end = now + options_.validity();
  return registration;
}

absl::Status Membership::Heartbeat(const v1::ServerHeartbeatRequest& request,
                                   absl::Time now) {
  const auto found = members_.find(request.name());
  if (found == members_.end()) {
    return absl::NotFoundError(
        absl::StrCat("server '", request.name().substr(0, 64),
                     "' is not known to this scheduler: register"));
  }
  ServerMember& member = found->second;
  if (member.address.incarnation() != request.incarnation()) {
    return absl::AbortedError(absl::StrCat(
        "server name '", request.name(), "' is held by incarnation ",
        member.address.incarnation(), " at ", member.address.address(),
        ", not by ", request.incarnation()));
  }
  if (!member.registered || member.must_register) {
    return absl::NotFoundError(
        absl::StrCat("server '", request.name(), "' has to register again"));
  }
  member.load = request.load();
  member.wants_drain = request.draining();
  member.state_recovery = request.state_recovery();
  member.state_recovery_message = request.state_recovery_message();
  member.dead = false;
  member.last_heard = now;
  member.lease_end = now + options_.validity();
  return absl::OkStatus();
}

void Membership::Expect(const v1::ServerAddress& server, absl::Time now) {
  ServerMember& member = members_[server.name()];
  member.address = server;
  member.last_heard = now;
  member.lease_end = now + options_.validity();
}

void Membership::RequireRegistration(const std::string& name) {
  const auto found = members_.find(name);
  if (found != members_.end()) found->second.must_register = true;
}

std::vector<std::string> Membership::Expire(absl::Time now) {
  std::vector<std::string> died;
  for (auto it = members_.begin(); it != members_.end();) {
    ServerMember& member = it->second;
    if (!member.dead && now >= member.lease_end) {
      member.dead = true;
      died.push_back(it->first);
    }
    const bool forget = member.dead && now >= member.lease_end + kShowDead;
    it = forget ? members_.erase(it) : std::next(it);
  }
  return died;
}

void Membership::SetDrained(const std::string& name, bool drained) {
  if (drained) {
    drained_.insert(name);
  } else {
    drained_.erase(name);
  }
}

bool Membership::draining(const std::string& name) const {
  const ServerMember* member = Find(name);
  return drained_by_hand(name) || (member != nullptr && member->wants_drain);
}

std::vector<std::string> Membership::Placeable() const {
  std::vector<std::string> names;
  for (const auto& [name, member] : members_) {
    if (member.usable() && !draining(name)) names.push_back(name);
  }
  return names;
}

void Membership::SetMayLeave(const std::string& name, bool may_leave) {
  const auto found = members_.find(name);
  if (found != members_.end()) found->second.may_leave = may_leave;
}

void Membership::ExtendLeases(absl::Duration by) {
  for (auto& [name, member] : members_) member.lease_end += by;
}

std::vector<std::string> Membership::Awaited() const {
  std::vector<std::string> names;
  for (const auto& [name, member] : members_) {
    if (!member.usable() && !member.dead) names.push_back(name);
  }
  return names;
}

bool Membership::AnySuspect(absl::Time now) const {
  return std::any_of(members_.begin(), members_.end(), [&](const auto& entry) {
    return StateOf(entry.second, now) == v1::MEMBER_STATE_SUSPECT;
  });
}

bool Membership::AnyUsable() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const auto& entry) { return entry.second.usable(); });
}

const ServerMember* Membership::Find(const std::string& name) const {
  const auto found = members_.find(name);
  return found == members_.end() ? nullptr : &found->second;
}

v1::MemberState Membership::StateOf(const ServerMember& member,
                                    absl::Time now) const {
  if (member.dead) return v1::MEMBER_STATE_DEAD;
  const bool missed_two = now - member.last_heard > options_.patience();
  return missed_two || !member.usable() ? v1::MEMBER_STATE_SUSPECT
                                        : v1::MEMBER_STATE_ALIVE;
}

}  // namespace kronserve::scheduler
