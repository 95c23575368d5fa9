#include "scheduler/job.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace kronserve::scheduler {
namespace {

// "job/NAME" -> JobConfig of a job that is kept; without world and assignment
// while it has none.
constexpr char kLivePrefix[] = "job/";
// "wishes/NAME" -> JobWishes of a job that is kept; absent when there are none.
constexpr char kWishesPrefix[] = "wishes/";
// "drop/NAME" -> JobConfig with the name, world.version and the servers that
// still have to drop worlds up to it.
constexpr char kDropPrefix[] = "drop/";
// "drain/NAME" -> empty: the server is drained by hand.
constexpr char kDrainPrefix[] = "drain/";
// -> JobHeld with the HighWater.
constexpr char kHighWaterKey[] = "high_water";

StateWrite LiveRecord(const Job& job) {
  StateWrite write{absl::StrCat(kLivePrefix, job.name), std::nullopt};
  if (job.kept()) write.value = job.config.SerializeAsString();
  return write;
}

StateWrite WishesRecord(const Job& job) {
  StateWrite write{absl::StrCat(kWishesPrefix, job.name), std::nullopt};
  std::string value = job.wishes.SerializeAsString();
  if (job.kept() && !value.empty()) write.value = std::move(value);
  return write;
}

StateWrite DropRecord(const Job& job) {
  StateWrite write{absl::StrCat(kDropPrefix, job.name), std::nullopt};
  if (job.drops.empty()) return write;
  v1::JobConfig record;
  record.set_job(job.name);
  record.mutable_world()->set_version(job.given_up());
  for (const v1::ServerAddress& server : job.drops.servers()) {
    *record.mutable_assignment()->add_servers() = server;
  }
  write.value = record.SerializeAsString();
  return write;
}

absl::Status Damaged(const std::string& key, const std::string& why) {
  return absl::DataLossError(absl::StrCat(
      "stored record '", key, "' is damaged: ", why,
      "; start with another state file and let the jobs register again"));
}

absl::Status RestoreLive(const std::string& key, const v1::JobConfig& config,
                         absl::Time now, Job* job) {
  const v1::Assignment& assignment = config.assignment();
  if (!config.has_world() && !config.has_assignment()) {
    job->config = config;
    job->layers.assign(config.layers_size(), LayerPlace());
    return absl::OkStatus();
  }
  if (config.world().version() < 1 || config.world().ranks().empty() ||
      assignment.owners_size() != config.layers_size()) {
    return Damaged(key,
                   absl::StrCat("world ", config.world().version(), " with ",
                                config.world().ranks_size(), " ranks, ",
                                config.layers_size(), " layers and ",
                                assignment.owners_size(), " owners"));
  }
  job->config = config;
  job->roster.Restore(config.world(), now);
  job->was_ready = true;
  for (const v1::LayerOwner& owner : assignment.owners()) {
    LayerPlace place;
    place.owner = owner.server();
    place.source = owner.source();
    place.epoch = assignment.epoch();
    place.issued = true;
    job->needs_plan |= place.owner.empty();
    job->layers.push_back(std::move(place));
  }
  job->needs_moves = true;
  job->configures.SetTargets(
      {assignment.servers().begin(), assignment.servers().end()},
      assignment.epoch());
  return absl::OkStatus();
}

absl::Status RestoreWishes(const std::string& key, const std::string& value,
                           JobTable* jobs) {
  const auto found = jobs->find(key.substr(sizeof(kWishesPrefix) - 1));
  if (found == jobs->end()) return Damaged(key, "it belongs to no job");
  if (!found->second.wishes.ParseFromString(value)) {
    return Damaged(key, "it does not parse");
  }
  return absl::OkStatus();
}

void RestoreDrop(const v1::JobConfig& record, Job* job) {
  job->drops.SetTargets({record.assignment().servers().begin(),
                         record.assignment().servers().end()},
                        static_cast<uint64_t>(record.world().version()));
  if (job->kept()) return;
  job->finished = true;
  // Which of the two is not stored: checkpoints stay then.
  job->expired = true;
  job->config.mutable_world()->set_version(record.world().version());
}

}  // namespace

void HighWater::Raise(int64_t other_world_version, uint64_t other_epoch) {
  world_version = std::max(world_version, other_world_version);
  epoch = std::max(epoch, other_epoch);
}

bool Job::kept() const {
  return !finished && (has_world() || wishes.ByteSizeLong() > 0);
}

int Job::num_ownerless() const {
  return static_cast<int>(std::count_if(
      layers.begin(), layers.end(),
      [](const LayerPlace& place) { return place.owner.empty(); }));
}

bool Job::any_moving() const {
  return std::any_of(layers.begin(), layers.end(),
                     [](const LayerPlace& place) { return place.moving(); });
}

bool Job::Involves(const std::string& server) const {
  return std::any_of(layers.begin(), layers.end(),
                     [&](const LayerPlace& place) {
                       return place.owner == server || place.source == server;
                     });
}

const v1::StoredCheckpoint* Job::WritingCheckpoint() const {
  if (wishes.checkpoints().empty()) return nullptr;
  const v1::StoredCheckpoint& last =
      wishes.checkpoints(wishes.checkpoints_size() - 1);
  return last.state() == v1::STORED_CHECKPOINT_STATE_WRITING ? &last : nullptr;
}

int64_t Job::Progress(absl::Time now) const {
  int64_t progress = std::max(step, config.world().start_step());
  if (roster.AnyAlive(now)) return progress;
  // Nobody is in a step: what moves may go at once.
  for (const v1::LayerOwner& owner : config.assignment().owners()) {
    if (!owner.source().empty()) {
      progress = std::max(progress, owner.from_step());
    }
  }
  return progress;
}

v1::JobState Job::State(absl::Time now) const {
  if (finished) return v1::JOB_STATE_FINISHED;
  if (!roster.AnyAlive(now)) return v1::JOB_STATE_IDLE;
  if (!roster.formed() || !was_ready) return v1::JOB_STATE_JOINING;
  return v1::JOB_STATE_RUNNING;
}

absl::Status UnknownJob(const std::string& name) {
  return absl::NotFoundError(absl::StrCat(
      "job '", name.substr(0, 64), "' is not registered or has finished"));
}

WriteBatch SaveJob(const Job& job, const HighWater& high_water, uint64_t term) {
  v1::JobHeld marks;
  marks.set_world_version(high_water.world_version);
  marks.set_epoch(high_water.epoch);
  return {LiveRecord(job),
          WishesRecord(job),
          DropRecord(job),
          {kHighWaterKey, marks.SerializeAsString()},
          {kTermKey, absl::StrCat(term)}};
}

StateWrite SaveDrain(const std::string& server, bool drained) {
  StateWrite write{absl::StrCat(kDrainPrefix, server), std::nullopt};
  if (drained) write.value = "";
  return write;
}

std::vector<std::string> RestoreDrains(const StateMap& state) {
  std::vector<std::string> servers;
  for (const auto& [key, value] : state) {
    if (!absl::StartsWith(key, kDrainPrefix)) continue;
    servers.push_back(key.substr(sizeof(kDrainPrefix) - 1));
  }
  return servers;
}

absl::Status RestoreJobs(const StateMap& state, absl::Duration validity,
                         absl::Time now, JobTable* jobs,
                         HighWater* high_water) {
  const auto job_named = [&](const std::string& name) {
    return &jobs->try_emplace(name, name, validity).first->second;
  };
  // Live records first: a drop record beside one belongs to its earlier life.
  for (const auto& [key, value] : state) {
    if (!absl::StartsWith(key, kLivePrefix)) continue;
    v1::JobConfig config;
    if (!config.ParseFromString(value))
      return Damaged(key, "it does not parse");
    KRONSERVE_RETURN_IF_ERROR(
        RestoreLive(key, config, now, job_named(config.job())));
  }
  for (const auto& [key, value] : state) {
    if (!absl::StartsWith(key, kWishesPrefix)) continue;
    KRONSERVE_RETURN_IF_ERROR(RestoreWishes(key, value, jobs));
  }
  for (const auto& [name, job] : *jobs) {
    if (job.kept()) continue;
    return Damaged(absl::StrCat(kLivePrefix, name),
                   "it has neither a world nor wishes");
  }
  for (const auto& [key, value] : state) {
    if (!absl::StartsWith(key, kDropPrefix)) continue;
    v1::JobConfig record;
    if (!record.ParseFromString(value))
      return Damaged(key, "it does not parse");
    RestoreDrop(record, job_named(record.job()));
  }
  const auto found = state.find(kHighWaterKey);
  if (found == state.end()) return absl::OkStatus();
  v1::JobHeld marks;
  if (!marks.ParseFromString(found->second)) {
    return Damaged(kHighWaterKey, "it does not parse");
  }
  high_water->Raise(marks.world_version(), marks.epoch());
  return absl::OkStatus();
}

}  // namespace kronserve::scheduler
