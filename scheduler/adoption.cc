#include "scheduler/adoption.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "placement/job_validation.h"
#include "scheduler/limits.h"

namespace kronserve::scheduler {
namespace {

bool Names(const v1::Assignment& assignment, const std::string& server) {
  return std::any_of(assignment.servers().begin(), assignment.servers().end(),
                     [&](const auto& one) { return one.name() == server; });
}

// What RestoreJobs() may take for granted of our own records, a server has to
// prove.
absl::Status CheckConfig(const v1::JobConfig& config) {
  KRONSERVE_RETURN_IF_ERROR(
      placement::ValidateJob(config.layers(), config.options()));
  const v1::World& world = config.world();
  bool sound = world.version() >= 1 && world.ranks_size() <= kMaxWorldSize &&
               world.start_step() >= 0 && world.start_step() <= kMaxNumber;
  for (const v1::RankInfo& rank : world.ranks()) {
    sound &= rank.asked_rank() >= 0 && rank.asked_rank() < kMaxWorldSize;
  }
  const v1::Assignment& assignment = config.assignment();
  for (int i = 0; i < assignment.owners_size(); ++i) {
    const v1::LayerOwner& owner = assignment.owners(i);
    sound &= owner.layer() == i && owner.from_step() >= 0 &&
             owner.from_step() <= kMaxNumber;
    for (const std::string& name : {owner.server(), owner.source()}) {
      sound &= name.empty() || Names(assignment, name);
    }
  }
  if (sound) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "its config has ranks, steps or owners that cannot be");
}

}  // namespace

bool KnowsMore(const v1::JobHeld& held, const Job* job) {
  if (!held.has_config()) return false;
  if (job == nullptr) return true;
  if (!job->has_world()) return held.world_version() > job->given_up();
  if (job->finished) return held.world_version() > job->world_version();
  return std::pair(held.world_version(), held.epoch()) >
         std::pair(job->world_version(), job->epoch());
}

absl::Status CheckHeld(const v1::JobHeld& held) {
  if (held.world_version() >= 0 && held.world_version() <= kMaxNumber &&
      held.epoch() <= static_cast<uint64_t>(kMaxNumber) &&
      held.newest_step() >= -1 && held.newest_step() <= kMaxNumber &&
      held.job().size() <= placement::kMaxNameBytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "job '", held.job().substr(0, 64), "': world version ",
      held.world_version(), ", epoch ", held.epoch(), ", newest step ",
      held.newest_step(), " or the length of its name is out of range"));
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
  KRONSERVE_RETURN_IF_ERROR(CheckConfig(config));
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
