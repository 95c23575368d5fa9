#include "scheduler/roster.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace kronserve::scheduler {
namespace {

constexpr size_t kMaxMissingLines = 8;

}  // namespace

void Roster::Restore(const v1::World& world, absl::Time now) {
  run_id_ = world.run_id();
  restart_count_ = world.restart_count();
  formed_ = true;
  ranks_.clear();
  for (const v1::RankInfo& info : world.ranks()) {
    Rank rank;
    rank.incarnation = info.incarnation();
    rank.joined = true;
    rank.node = info.node();
    rank.next_step = world.start_step();
    rank.last_heard = now;
    rank.lease_end = now + validity_;
    // Numbers grow; worlds of before they were kept have none.
    const int asked = std::max(info.asked_rank(), world_size());
    ranks_.resize(asked + 1);
    ranks_[asked] = rank;
  }
}

absl::Status Roster::CheckClaim(const v1::JoinJobRequest& request,
                                absl::Time now) const {
  if (AnyAlive(now) && request.run_id() != run_id_) {
    return absl::AlreadyExistsError(
        absl::StrCat("job '", request.job(), "' is running as run '", run_id_,
                     "', this is run '", request.run_id(),
                     "': end the other run, or choose another job name"));
  }
  if (request.run_id() != run_id_ || request.restart_count() > restart_count_) {
    return absl::OkStatus();
  }
  if (request.restart_count() < restart_count_) {
    return absl::AbortedError(absl::StrCat(
        "job '", request.job(), "' is at restart ", restart_count_,
        ", this process belongs to restart ", request.restart_count()));
  }
  if (!AnyAlive(now)) return absl::OkStatus();
  if (request.min_ranks() == 0 && request.world_size() != world_size()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "job '", request.job(), "' has world size ", world_size(), ", rank ",
        request.rank(), " asks for ", request.world_size()));
  }
  if (request.rank() >= world_size()) return absl::OkStatus();
  const Rank& rank = ranks_[request.rank()];
  if (rank.incarnation != 0 && rank.incarnation != request.incarnation() &&
      now < rank.lease_end) {
    return absl::AlreadyExistsError(absl::StrCat(
        "rank ", request.rank(), " of job '", request.job(),
        "' is held by a live process (incarnation ", rank.incarnation,
        " on node '", rank.node, "', last heard ",
        absl::FormatDuration(now - rank.last_heard),
        " ago): give each process its own rank, or a restarted job a higher "
        "restart count"));
  }
  return absl::OkStatus();
}

void Roster::Reset(const v1::JoinJobRequest& request) {
  run_id_ = request.run_id();
  restart_count_ = request.restart_count();
  formed_ = false;
  ++generation_;
  ranks_.assign(request.world_size(), Rank());
}

absl::Status Roster::Claim(const v1::JoinJobRequest& request, absl::Time now) {
  KRONSERVE_RETURN_IF_ERROR(CheckClaim(request, now));
  if (request.run_id() != run_id_ ||
      request.restart_count() != restart_count_ ||
      (request.min_ranks() == 0 && request.world_size() != world_size())) {
    Reset(request);
  }
  if (request.world_size() > world_size()) {
    ranks_.resize(request.world_size());
  }
  Rank& rank = ranks_[request.rank()];
  const bool present = rank.joined && rank.incarnation == request.incarnation();
  if (formed_ && !present) {
    // A rank that died or was left out comes: the others have to join again,
    // since their group has to be rebuilt and only they know their next step.
    formed_ = false;
    ++generation_;
    for (Rank& other : ranks_) other.joined = false;
  }
  if (!present) newest_ = now;
  settled_ = now >= newest_ + validity_;
  if (!formed_) {
    rank.incarnation = request.incarnation();
    rank.joined = true;
    rank.node = request.node();
    rank.next_step = request.next_step();
    rank.fresh = request.fresh();
    rank.min_ranks = request.min_ranks();
    rank.restore_checkpoint = request.restore_checkpoint();
  }
  rank.last_heard = now;
  rank.lease_end = now + validity_;
  return absl::OkStatus();
}

absl::Status Roster::Renew(int rank, uint64_t incarnation, absl::Time now) {
  if (!formed_) {
    return absl::AbortedError(
        absl::StrCat("the world is being replaced (restart ", restart_count_,
                     " of run '", run_id_, "'): join again"));
  }
  Rank* const held = InWorld(rank);
  if (held == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " is not in a world of ", num_joined()));
  }
  if (held->incarnation != incarnation) {
    return absl::AbortedError(
        absl::StrCat("rank ", rank, " is held by incarnation ",
                     held->incarnation, ", not by ", incarnation));
  }
  held->last_heard = now;
  held->lease_end = now + validity_;
  return absl::OkStatus();
}

void Roster::Expire(absl::Time now) {
  if (formed_) return;
  for (Rank& rank : ranks_) {
    if (now >= rank.lease_end) rank.joined = false;
  }
}

void Roster::ExtendLeases(absl::Duration by) {
  for (Rank& rank : ranks_) rank.lease_end += by;
}

int Roster::num_joined() const {
  return static_cast<int>(
      std::count_if(ranks_.begin(), ranks_.end(),
                    [](const Rank& rank) { return rank.joined; }));
}

// What the most demanding of those who are here asks for.
int Roster::num_needed() const {
  int needed = 1;
  for (const Rank& rank : ranks_) {
    if (!rank.joined) continue;
    needed =
        std::max(needed, rank.min_ranks == 0 ? world_size() : rank.min_ranks);
  }
  return needed;
}

Roster::Rank* Roster::InWorld(int rank) {
  for (Rank& candidate : ranks_) {
    if (candidate.joined && rank-- == 0) return &candidate;
  }
  return nullptr;
}

bool Roster::complete() const {
  const int joined = num_joined();
  return joined > 0 &&
         (joined == world_size() || (settled_ && joined >= num_needed()));
}

v1::World Roster::MakeWorld(int64_t version) const {
  v1::World world;
  world.set_version(version);
  world.set_run_id(run_id_);
  world.set_restart_count(restart_count_);
  const bool all_fresh =
      std::all_of(ranks_.begin(), ranks_.end(),
                  [](const Rank& rank) { return !rank.joined || rank.fresh; });
  int64_t start_step = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < world_size(); ++i) {
    if (!ranks_[i].joined) continue;
    v1::RankInfo* info = world.add_ranks();
    info->set_rank(world.ranks_size() - 1);
    info->set_asked_rank(i);
    info->set_node(ranks_[i].node);
    info->set_incarnation(ranks_[i].incarnation);
    if (ranks_[i].fresh && !all_fresh) continue;
    start_step = std::min(start_step, ranks_[i].next_step);
  }
  world.set_start_step(start_step);
  return world;
}

std::string Roster::restore_checkpoint() const {
  for (const Rank& rank : ranks_) {
    if (rank.joined && !rank.fresh) return rank.restore_checkpoint;
  }
  return "";
}

std::vector<std::string> Roster::Missing() const {
  std::vector<std::string> lines;
  size_t missing = 0;
  for (int i = 0; i < world_size(); ++i) {
    if (ranks_[i].joined) continue;
    if (++missing > kMaxMissingLines) continue;
    lines.push_back(absl::StrCat(
        "rank ", i, " of ", world_size(),
        ranks_[i].incarnation == 0 ? " has not joined"
                                   : " has to join again; it was here before"));
  }
  if (missing > kMaxMissingLines) {
    lines.push_back(
        absl::StrCat("and ", missing - kMaxMissingLines, " more ranks"));
  }
  if (missing > 0 && num_joined() >= num_needed()) {
    lines.push_back(absl::StrCat("or for ", absl::FormatDuration(validity_),
                                 " without another rank: ", num_joined(),
                                 " are here, ", num_needed(), " are enough"));
  }
  return lines;
}

bool Roster::AnyAlive(absl::Time now) const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [now](const Rank& rank) { return now < rank.lease_end; });
}

}  // namespace kronserve::scheduler
