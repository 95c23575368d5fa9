#include "server/round.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace kronserve::server {
namespace {

bool IsData(const std::optional<Contribution>& contribution) {
  return contribution.has_value() &&
         contribution->body == Contribution::Body::kData;
}

int64_t StagedBytes(const std::optional<Contribution>& contribution) {
  if (!contribution.has_value() || contribution->sum == nullptr) return 0;
  return static_cast<int64_t>(contribution->sum->size() * sizeof(float));
}

}  // namespace

Round::Round(int64_t step, absl::Time opened,
             const std::vector<int>& contributors)
    : step_(step), opened_(opened) {
  members_.reserve(contributors.size());
  for (int rank : contributors) {
    members_.emplace_back();
    members_.back().rank = rank;
  }
}

const Round::Member* Round::FindMember(int rank) const {
  for (const Member& member : members_) {
    if (member.rank == rank) return &member;
  }
  return nullptr;
}

Round::Member* Round::FindMember(int rank) {
  return const_cast<Member*>(std::as_const(*this).FindMember(rank));
}

const Contribution* Round::Find(int rank, v1::FactorKind kind) const {
  const Member* member = FindMember(rank);
  if (member == nullptr) return nullptr;
  const auto& slot = kind == v1::FACTOR_KIND_INPUT ? member->a : member->g;
  return slot.has_value() ? &*slot : nullptr;
}

absl::Status Round::CheckSettings(double damping, double factor_decay) const {
  if (!settings_.has_value()) return absl::OkStatus();
  if (settings_->damping != damping) {
    return absl::InvalidArgumentError(
        absl::StrCat("damping ", damping, " disagrees with ",
                     settings_->damping, " of an earlier contributor"));
  }
  if (settings_->factor_decay != factor_decay) {
    return absl::InvalidArgumentError(
        absl::StrCat("factor_decay ", factor_decay, " disagrees with ",
                     settings_->factor_decay, " of an earlier contributor"));
  }
  return absl::OkStatus();
}

void Round::SetSettings(double damping, double factor_decay) {
  if (!settings_.has_value()) settings_ = Settings{damping, factor_decay};
}

void Round::Add(int rank, v1::FactorKind kind, Contribution contribution) {
  Member* member = FindMember(rank);
  auto& slot = kind == v1::FACTOR_KIND_INPUT ? member->a : member->g;
  slot = std::move(contribution);
}

std::vector<v1::ClosedContribution> Round::Identities() const {
  std::vector<v1::ClosedContribution> identities;
  for (const Member& member : members_) {
    for (const auto kind : {v1::FACTOR_KIND_INPUT, v1::FACTOR_KIND_OUTPUT}) {
      if (Find(member.rank, kind) == nullptr) continue;
      v1::ClosedContribution& identity = identities.emplace_back();
      identity.set_step(step_);
      identity.set_rank(member.rank);
      identity.set_kind(kind);
    }
  }
  return identities;
}

bool Round::IsComplete() const {
  for (const Member& member : members_) {
    if (!member.in()) return false;
  }
  return true;
}

double Round::ReadyShare(const Committed& committed) const {
  int ready = 0;
  for (const Member& member : members_) {
    if (member.in() && committed(member.rank)) ++ready;
  }
  return static_cast<double>(ready) / static_cast<double>(members_.size());
}

// Counts what a member's contributions became when they were not merged.
void Round::CountRest(const Member& member, CloseAs how, bool ready,
                      ContributionCounts* counts) {
  for (const auto* slot : {&member.a, &member.g}) {
    if (!slot->has_value()) continue;
    const Contribution::Body body = (*slot)->body;
    if (body == Contribution::Body::kRefused) continue;
    if (how == CloseAs::kVoid) {
      ++counts->voided;
    } else if (body == Contribution::Body::kEmpty || ready) {
      ++counts->empty;  // Ready data here lost its other half.
    } else {
      ++counts->late;
    }
  }
}

ClosedRound Round::Close(CloseAs how, const Committed& committed) {
  ClosedRound closed;
  closed.step = step_;
  closed.how = how;
  if (settings_.has_value()) {
    closed.damping = settings_->damping;
    closed.factor_decay = settings_->factor_decay;
  }
  for (Member& member : members_) {
    closed.staged_bytes += StagedBytes(member.a) + StagedBytes(member.g);
    const bool ready =
        how == CloseAs::kMerge && member.in() && committed(member.rank);
    if (how == CloseAs::kMerge && !ready) closed.partial = true;
    if (ready && IsData(member.a) && IsData(member.g)) {
      closed.a.push_back({member.a->sum, member.a->rows});
      closed.g.push_back({member.g->sum, member.g->rows});
      closed.counts.merged += 2;
    } else {
      CountRest(member, how, ready, &closed.counts);
    }
    if (member.a.has_value()) member.a->sum = nullptr;
    if (member.g.has_value()) member.g->sum = nullptr;
  }
  return closed;
}

}  // namespace kronserve::server
