#include "scheduler/adoption.h"

#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "placement/job_validation.h"

namespace kronserve::scheduler {

bool KnowsMore(const v1::JobHeld& held, const Job* job) {
  if (!held.has_config()) return false;
  if (job == nullptr || !job->has_world()) return true;
  if (job->finished) return held.world_version() > job->world_version();
  return std::pair(held.world_version(), held.epoch()) >
         std::pair(job->world_version(), job->epoch());
}

bool ClaimedHere(const Job& job) { return job.roster.generation() > 0; }

absl::StatusOr<JobTable::node_type> JobOf(const v1::JobHeld& held,
                                          absl::Duration validity,
                                          absl::Time now) {
  const v1::JobConfig& config = held.config();
  if (config.job() != held.job() ||
      config.world().version() != held.world_version() ||
      config.assignment().epoch() != held.epoch()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its config is of job '", config.job(), "', world ",
        config.world().version(), ", epoch ", config.assignment().epoch(),
        ", it holds world ", held.world_version(), ", epoch ", held.epoch()));
  }
  JobTable table;
  HighWater unused;
  const absl::Status status = RestoreJobs(
      {{absl::StrCat("job/", held.job()), config.SerializeAsString()}},
      validity, now, &table, &unused);
  if (!status.ok()) return absl::InvalidArgumentError(status.message());
  Job& job = table.at(held.job());
  if (held.has_newest_step()) job.step = held.newest_step();
  return table.extract(held.job());
}

absl::Status TakeOwners(const Job& held, Job* gathering) {
  const std::string difference = placement::DescribeDifference(
      gathering->config.layers(), gathering->config.options(),
      held.config.layers(), held.config.options());
  if (!difference.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("its ranks join with another plan: ", difference));
  }
  gathering->config = held.config;
  gathering->layers = held.layers;
  gathering->configures = held.configures;
  return absl::OkStatus();
}

}  // namespace kronserve::scheduler
