// How the scheduler goes on under running jobs when its store knows less than
// their servers.

#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/adoption.h"
#include "scheduler/limits.h"
#include "scheduler/scheduler_core.h"

namespace kronserve::scheduler {

bool SchedulerCore::InFirstLease() const {
  return last_tick_ < started_ + options_.lease.validity();
}

bool SchedulerCore::MayPlace() const {
  if (!membership_.Awaited().empty() || HearsNobody(last_tick_)) return false;
  return !store_lags_ || !InFirstLease();
}

absl::Status SchedulerCore::NotKnown(const std::string& job) const {
  if (!InFirstLease()) return UnknownJob(job);
  return absl::UnavailableError(absl::StrCat(
      "job '", job.substr(0, 64),
      "' is not known yet: the scheduler has just started, and servers that "
      "hold the job may still register"));
}

bool SchedulerCore::AdoptJob(const ServerMember& server,
                             const v1::JobHeld& held, absl::Time now) {
  Job* job = FindJob(held.job());
  if (!KnowsMore(held, job)) return false;
  const bool known = job != nullptr && !job->finished && job->has_world();
  const bool claimed = job != nullptr && !job->finished && ClaimedHere(*job);
  // Later we have placed layers ourselves, and issue them anew instead.
  if (known && !InFirstLease()) return false;
  if (known && claimed && job->roster.formed()) return false;
  absl::StatusOr<JobTable::node_type> adopted =
      JobOf(held, options_.lease.validity(), now);
  absl::Status status = adopted.status();
  if (status.ok() && claimed) status = TakeOwners(adopted->mapped(), job);
  if (status.ok() && job == nullptr && jobs_.size() >= kMaxJobs) {
    status = absl::ResourceExhaustedError(
        absl::StrCat("there are ", jobs_.size(), " jobs already"));
  }
  if (!status.ok()) {
    Note(LogLevel::kWarning,
         absl::StrCat("server '", server.address.name(), "' holds job '",
                      held.job(),
                      "', which cannot be taken over: ", status.message()));
    return false;
  }
  if (!claimed) {
    if (job != nullptr) {
      adopted->mapped().drops = job->drops;
      adopted->mapped().wishes = job->wishes;
    }
    jobs_.erase(held.job());
    job = &jobs_.insert(*std::move(adopted)).position->second;
  }
  store_lags_ = true;
  for (const v1::ServerAddress& owner : job->config.assignment().servers()) {
    const ServerMember* member = membership_.Find(owner.name());
    if (member == nullptr) {
      membership_.Expect(owner, now);
    } else if (member->address.incarnation() != owner.incarnation()) {
      LoseServerOf(job, owner.name(), "was replaced by a new process");
    }
  }
  job->configures.Confirm(server.address, held.epoch());
  high_water_.Raise(held.world_version(), held.epoch());
  Note(LogLevel::kWarning,
       absl::StrCat("job '", held.job(), "' is taken over at world ",
                    held.world_version(), ", epoch ", held.epoch(),
                    ", as server '", server.address.name(),
                    "' holds it: the store did not know that"));
  Save(job);
  return true;
}

}  // namespace kronserve::scheduler
