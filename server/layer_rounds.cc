#include "server/layer_rounds.h"

#include <algorithm>
#include <utility>

namespace kronserve::server {
namespace {

// A share that is exactly the least one must pass whatever the division did.
constexpr double kShareSlack = 1e-9;

}  // namespace

LayerRounds::LayerRounds(const RoundRules& rules, std::vector<int> contributors,
                         int64_t closed_through)
    : rules_(rules),
      contributors_(std::move(contributors)),
      closed_through_(closed_through) {}

bool LayerRounds::Expects(int rank) const {
  return std::binary_search(contributors_.begin(), contributors_.end(), rank);
}

std::optional<int64_t> LayerRounds::oldest_open() const {
  if (open_.empty()) return std::nullopt;
  return open_.begin()->first;
}

absl::Time LayerRounds::NextDeadline() const {
  if (!rules_.partial || open_.empty()) return absl::InfiniteFuture();
  return open_.begin()->second.opened() + rules_.deadline;
}

const Contribution* LayerRounds::Find(int64_t step, int rank,
                                      v1::FactorKind kind) const {
  for (const auto* rounds : {&open_, &recent_}) {
    const auto it = rounds->find(step);
    if (it != rounds->end()) return it->second.Find(rank, kind);
  }
  return nullptr;
}

absl::Status LayerRounds::CheckSettings(int64_t step, double damping,
                                        double factor_decay) const {
  const auto it = open_.find(step);
  if (it == open_.end()) return absl::OkStatus();
  return it->second.CheckSettings(damping, factor_decay);
}

Round& LayerRounds::Open(int64_t step, absl::Time now) {
  auto it = open_.find(step);
  if (it == open_.end()) {
    it = open_.emplace(step, Round(step, now, contributors_)).first;
  }
  return it->second;
}

void LayerRounds::Remember(int64_t step, int rank, v1::FactorKind kind,
                           Contribution contribution) {
  auto it = recent_.find(step);
  if (it == recent_.end()) {
    it = recent_.emplace(step, Round(step, absl::InfinitePast(), contributors_))
             .first;
  }
  contribution.sum = nullptr;
  it->second.Add(rank, kind, std::move(contribution));
  TrimRecent();
}

void LayerRounds::TrimRecent() {
  // A repeat comes within the budget of its step, so a few rounds are enough.
  const size_t most = static_cast<size_t>(rules_.max_open) + 2;
  while (recent_.size() > most) recent_.erase(recent_.begin());
}

std::optional<CloseAs> LayerRounds::Decide(const Round& round,
                                           const StepLedger& ledger,
                                           absl::Time now) const {
  const int64_t step = round.step();
  if (ledger.VoidReason(step) != nullptr) return CloseAs::kVoid;
  if (round.IsComplete() && ledger.IsCommittedByAll(step)) {
    return CloseAs::kMerge;
  }
  const bool forced =
      num_open() > rules_.max_open || step < close_before_ ||
      (rules_.partial && now >= round.opened() + rules_.deadline);
  if (!forced) return std::nullopt;
  const double share = round.ReadyShare(
      [&](int rank) { return ledger.IsCommitted(step, rank); });
  const bool enough = rules_.partial && share >= rules_.min_share - kShareSlack;
  return enough ? CloseAs::kMerge : CloseAs::kDrop;
}

void LayerRounds::Pass(int64_t step) {
  if (!rules_.partial) CloseBefore(step);
  passed_ = std::max(passed_, step);
  ClosePassed();
}

void LayerRounds::ClosePassed() {
  if (open_.empty()) closed_through_ = std::max(closed_through_, passed_ - 1);
}

std::vector<ClosedRound> LayerRounds::Close(const StepLedger& ledger,
                                            absl::Time now) {
  std::vector<ClosedRound> closed;
  while (!open_.empty()) {
    const auto front = open_.begin();
    const int64_t step = front->first;
    const std::optional<CloseAs> how = Decide(front->second, ledger, now);
    if (!how.has_value()) break;
    closed.push_back(front->second.Close(
        *how, [&](int rank) { return ledger.IsCommitted(step, rank); }));
    closed_through_ = std::max(closed_through_, step);
    recent_.insert_or_assign(step, std::move(front->second));
    open_.erase(front);
  }
  if (open_.empty() || open_.begin()->first >= close_before_) {
    closed_through_ = std::max(closed_through_, close_before_ - 1);
  }
  ClosePassed();
  TrimRecent();
  return closed;
}

void LayerRounds::CloseBefore(int64_t step) {
  close_before_ = std::max(close_before_, step);
}

std::vector<v1::ClosedContribution> LayerRounds::Closed(int64_t through) const {
  std::vector<v1::ClosedContribution> closed;
  for (const auto& [step, round] : recent_) {
    if (step > through) break;
    for (auto& identity : round.Identities()) closed.push_back(identity);
  }
  return closed;
}

std::vector<ClosedRound> LayerRounds::Install(
    int64_t closed_through,
    const google::protobuf::RepeatedPtrField<v1::ClosedContribution>& closed) {
  std::vector<ClosedRound> dropped;
  while (!open_.empty() && open_.begin()->first <= closed_through) {
    Round& round = open_.begin()->second;
    dropped.push_back(round.Close(CloseAs::kDrop, [](int) { return false; }));
    open_.erase(open_.begin());
  }
  closed_through_ = std::max(closed_through_, closed_through);
  for (const v1::ClosedContribution& identity : closed) {
    // Contributors depend on the options alone, but a peer's word is no proof.
    if (!Expects(identity.rank())) continue;
    Remember(identity.step(), identity.rank(), identity.kind(), {});
  }
  return dropped;
}

std::vector<ClosedRound> LayerRounds::Restart(std::vector<int> contributors,
                                              int64_t closed_through) {
  std::vector<ClosedRound> dropped;
  for (auto& [step, round] : open_) {
    dropped.push_back(round.Close(CloseAs::kDrop, [](int) { return false; }));
  }
  open_.clear();
  recent_.clear();
  contributors_ = std::move(contributors);
  closed_through_ = closed_through;
  close_before_ = 0;
  passed_ = 0;
  return dropped;
}

}  // namespace kronserve::server
