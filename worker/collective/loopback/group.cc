#include "worker/collective/loopback/group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/status_macros.h"

namespace kronserve::worker::loopback {

Group::Group(std::string name, int size)
    : name_(std::move(name)), size_(size), claimed_(size), arrivals_(size) {
  for (auto& slots : slots_) slots.resize(size);
}

bool Group::Claim(int rank) {
  MutexLock lock(&mu_);
  if (claimed_[rank]) return false;
  claimed_[rank] = true;
  return true;
}

absl::Status Group::Connect(int rank, absl::Duration timeout) {
  MutexLock lock(&mu_);
  return MeetLocked(rank, timeout);
}

absl::Status Group::Exchange(int rank, const void* in, size_t bytes,
                             absl::Duration timeout,
                             const std::vector<std::string>** slots) {
  int64_t meeting = 0;
  {
    MutexLock lock(&mu_);
    if (!broken_.ok()) {
      return absl::UnavailableError(
          absl::StrCat("group '", name_, "' is finished: ", broken_.message()));
    }
    meeting = arrivals_[rank];
  }
  std::vector<std::string>& mine = slots_[meeting % 2];
  mine[rank].assign(static_cast<const char*>(in), bytes);
  {
    MutexLock lock(&mu_);
    KRONSERVE_RETURN_IF_ERROR(MeetLocked(rank, timeout));
  }
  *slots = &mine;
  return absl::OkStatus();
}

void Group::Break(const absl::Status& why) {
  MutexLock lock(&mu_);
  if (!broken_.ok()) return;
  broken_ = why;
  changed_.NotifyAll();
}

absl::Status Group::MeetLocked(int rank, absl::Duration timeout) {
  const absl::Time deadline = SteadyClock().Now() + timeout;
  const int64_t meeting = ++arrivals_[rank];
  changed_.NotifyAll();
  // Once all have come the operation is done, even if one left since.
  while (!AllArrivedLocked(meeting)) {
    if (!broken_.ok()) return broken_;
    const absl::Duration left = deadline - SteadyClock().Now();
    if (left <= absl::ZeroDuration()) {
      broken_ = absl::DeadlineExceededError(absl::StrCat(
          "group '", name_, "': after ", absl::FormatDuration(timeout),
          " still waiting for ", MissingLocked(meeting)));
      changed_.NotifyAll();
      return broken_;
    }
    changed_.WaitFor(&mu_, left);
  }
  return absl::OkStatus();
}

bool Group::AllArrivedLocked(int64_t meeting) const {
  return std::all_of(arrivals_.begin(), arrivals_.end(),
                     [meeting](int64_t count) { return count >= meeting; });
}

std::string Group::MissingLocked(int64_t meeting) const {
  std::string missing;
  for (int rank = 0; rank < size_; ++rank) {
    if (arrivals_[rank] >= meeting) continue;
    absl::StrAppend(&missing, missing.empty() ? "rank " : ", rank ", rank);
  }
  return missing;
}

}  // namespace kronserve::worker::loopback
