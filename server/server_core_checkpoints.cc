// ServerCore: layers come from checkpoints and are written to them.

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/limits.h"
#include "server/server_core.h"

namespace kronserve::server {
namespace {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

int64_t PublishedVersion(const LayerState& state) {
  return state.published() == nullptr ? 0 : state.published()->version;
}

absl::Status CheckVersions(const JobState& job,
                           const v1::WriteCheckpointRequest& request) {
  const std::string versions =
      absl::StrCat("checkpoint '", request.id(), "' of job '", job.name(),
                   "': asked in world ", request.world_version(), ", epoch ",
                   request.epoch(), ", here are ", job.world_version(), " and ",
                   job.epoch());
  if (request.world_version() < job.world_version() ||
      request.epoch() < job.epoch()) {
    return absl::AbortedError(versions);
  }
  if (request.world_version() > job.world_version() ||
      request.epoch() > job.epoch()) {
    return absl::UnavailableError(versions);
  }
  return absl::OkStatus();
}

}  // namespace

// Looks for the state of every layer that nobody hands over.
void ServerCore::BeginRestores(JobState& job, absl::Time now,
                               Effects* effects) {
  for (auto& [index, layer] : job.layers()) {
    if (!layer.is_awaited() || !layer.source.empty() || layer.restoring) {
      continue;
    }
    layer.restoring = true;
    const LayerKey key{job.name(), index, layer.instance};
    if (options_.has_checkpoints) {
      effects->restores.push_back({key, job.shared_config()});
    } else {
      FinishRestore(key,
                    absl::FailedPreconditionError("no checkpoint directory"),
                    now, effects);
    }
  }
}

void ServerCore::FinishRestore(const LayerKey& key,
                               absl::StatusOr<std::optional<Restored>> result,
                               absl::Time now, Effects* effects) {
  HeldLayer* layer = FindHeld(key);
  if (layer == nullptr || !layer->restoring) return;
  JobState& job = *jobs_[key.job];
  Restored restored;
  if (result.ok() && result->has_value()) {
    restored = **std::move(result);
  } else {
    restored.source = v1::RECOVERY_SOURCE_FACTORS;
    restored.contents.meta.set_factor_step(-1);
    // A layer that begins with its job has lost nothing.
    if (layer->from_step > 0 || !job.config().restore_checkpoint().empty()) {
      restored.message = result.ok() ? "there is no checkpoint of it"
                                     : std::string(result.status().message());
    }
  }
  BeginLayer(job, *layer, std::move(restored), effects);
  Advance(job, *layer, now, effects);
}

// The layer is owned from here on, with this state or none.
void ServerCore::BeginLayer(JobState& job, HeldLayer& layer, Restored restored,
                            Effects* effects) {
  layer.restoring = false;
  layer.phase =
      layer.is_to_leave() ? v1::LAYER_PHASE_LEAVING : v1::LAYER_PHASE_OWNED;
  const v1::LayerSnapshot& meta = restored.contents.meta;
  v1::LayerRecovery& recovery = job.recoveries()[layer.index];
  recovery.set_layer(layer.index);
  recovery.set_epoch(layer.since_epoch);
  recovery.set_source(restored.source);
  recovery.set_restored_through(meta.factor_step());
  recovery.set_from_step(layer.from_step);
  recovery.set_message(restored.message);
  if (restored.source != v1::RECOVERY_SOURCE_FACTORS) {
    Install(job, layer, restored.contents,
            meta.world_version() == job.world_version(), effects);
    WarnIfAhead(job, layer, effects);
    counters_.set_layers_restored(counters_.layers_restored() + 1);
  }
  // Heartbeats may have called it awaited.
  if (options_.has_checkpoints) effects->behind = true;
  if (layer.from_step == 0 && restored.message.empty()) return;
  effects->warnings.push_back(absl::StrCat(
      "layer begins with ", v1::RecoverySource_Name(restored.source), ": job '",
      job.name(), "', layer '", layer.state.rules().name,
      "', its averages end at step ", meta.factor_step(),
      ", it is answered from step ", layer.from_step,
      restored.message.empty() ? "" : ": ", restored.message));
}

absl::Time ServerCore::BackgroundDue(const HeldLayer& layer) const {
  const SavedState& saved = layer.saved;
  const bool changed = layer.state.updates() != saved.updates ||
                       PublishedVersion(layer.state) != saved.version;
  if (!options_.has_checkpoints || layer.is_awaited() || saved.writing ||
      !changed) {
    return absl::InfiniteFuture();
  }
  // With its refresh a state is worth more; but refreshes may never rest.
  return layer.state.IsQuiet() ? saved.due
                               : saved.due + options_.checkpoint_interval;
}

void ServerCore::WriteBackground(JobState& job, HeldLayer& layer,
                                 absl::Time now, Effects* effects) {
  if (BackgroundDue(layer) == absl::InfinitePast()) layer.saved.due = now;
  if (BackgroundDue(layer) > now) return;
  layer.saved.due = now + options_.checkpoint_interval;
  Write(job, layer, effects);
}

void ServerCore::Write(JobState& job, HeldLayer& layer, Effects* effects) {
  layer.saved.writing = true;
  layer.saved.updates = layer.state.updates();
  layer.saved.version = PublishedVersion(layer.state);
  effects->checkpoints.push_back({{job.name(), layer.index, layer.instance},
                                  "",
                                  job.Contents(layer, kAll)});
}

void ServerCore::WriteAll(JobState& job, Effects* effects) {
  if (!options_.has_checkpoints) return;
  for (auto& [index, layer] : job.layers()) {
    if (layer.is_awaited() || layer.state.updates() == 0) continue;
    // One that is being written may be older than what is here by now.
    Write(job, layer, effects);
  }
}

void ServerCore::CheckpointAll(Effects* effects) {
  for (auto& [name, job] : jobs_) WriteAll(*job, effects);
}

// The job that a request for a checkpoint is about, whatever its world.
template <typename Request>
absl::StatusOr<JobState*> ServerCore::FindCutJob(const Request& request) {
  KRONSERVE_RETURN_IF_ERROR(CheckTerm(request.term()));
  if (!IsStep(request.step())) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint '", request.id(), "' ends at step ",
                     request.step(), ", expected 0 to ", kMaxStep));
  }
  const auto it = jobs_.find(request.job());
  if (it == jobs_.end()) {
    return absl::NotFoundError(absl::StrCat(
        "job '", request.job(), "' is not known to '", options_.name, "'"));
  }
  if (!options_.has_checkpoints) {
    return absl::FailedPreconditionError(absl::StrCat(
        "server '", options_.name, "' has no checkpoint directory"));
  }
  return it->second.get();
}

absl::StatusOr<v1::WriteCheckpointResponse> ServerCore::WriteCheckpoint(
    const v1::WriteCheckpointRequest& request, absl::Time now,
    Effects* effects) {
  KRONSERVE_ASSIGN_OR_RETURN(JobState* const job, FindCutJob(request));
  const absl::Status versions = CheckVersions(*job, request);
  if (absl::IsUnavailable(versions)) effects->behind = true;
  KRONSERVE_RETURN_IF_ERROR(versions);
  std::optional<Cut>& cut = job->cut();
  if (!cut.has_value() || cut->id != request.id() ||
      cut->step != request.step()) {
    cut = Cut{request.id(), request.step(), {}, {}, {}};
  }
  AdvanceEnding(*job, now, effects);
  v1::WriteCheckpointResponse response;
  for (const auto& [index, layer] : job->layers()) {
    if (layer.is_leaving()) continue;
    const auto file = cut->files.find(index);
    if (file != cut->files.end()) {
      *response.add_files() = file->second;
    } else if (cut->taken.count(index) == 0 &&
               layer.state.IsPast(request.step())) {
      return absl::FailedPreconditionError(
          absl::StrCat("checkpoint '", request.id(), "' of job '", job->name(),
                       "' ends at step ", request.step(), ": layer '",
                       layer.state.rules().name, "' has merged a later one"));
    } else {
      response.set_layers_left(response.layers_left() + 1);
    }
  }
  KRONSERVE_RETURN_IF_ERROR(cut->failure);
  return response;
}

// Takes a layer's state for a job checkpoint when everything up to its step is
// in it. True when that has just been done.
bool ServerCore::WriteCut(JobState& job, HeldLayer& layer, absl::Time now,
                          Effects* effects) {
  const std::optional<int64_t> step = job.CutOf(layer);
  if (!step.has_value() || !job.IsOver(layer, *step + 1)) return false;
  CloseRounds(job, layer, now, effects);
  if (!layer.state.IsQuiet(*step)) return false;
  job.cut()->taken[layer.index] = layer.instance;
  job.cut()->files.erase(layer.index);
  effects->checkpoints.push_back({{job.name(), layer.index, layer.instance},
                                  job.cut()->id,
                                  job.Contents(layer, *step)});
  return true;
}

void ServerCore::FinishCheckpoint(
    const LayerKey& key, const std::string& checkpoint,
    const absl::StatusOr<v1::CheckpointFile>& result, absl::Time now,
    Effects* effects) {
  if (result.ok()) {
    counters_.set_checkpoints_written(counters_.checkpoints_written() + 1);
  } else {
    counters_.set_checkpoints_failed(counters_.checkpoints_failed() + 1);
    effects->warnings.push_back(
        absl::StrCat("checkpoint failed: job '", key.job, "', layer ",
                     key.layer, ": ", std::string(result.status().message())));
  }
  HeldLayer* layer = FindHeld(key);
  if (layer == nullptr) return;
  JobState& job = *jobs_[key.job];
  if (checkpoint.empty()) {
    layer->saved.writing = false;
    if (!result.ok()) layer->saved.updates = -1;  // Not saved.
    Advance(job, *layer, now, effects);
    return;
  }
  std::optional<Cut>& cut = job.cut();
  if (!cut.has_value() || cut->id != checkpoint) return;
  if (result.ok()) {
    cut->files[key.layer] = *result;
  } else {
    cut->failure = absl::DataLossError(
        absl::StrCat("checkpoint '", checkpoint, "', layer ", key.layer, ": ",
                     std::string(result.status().message())));
  }
}

absl::StatusOr<v1::CheckpointManifest> ServerCore::BeginCommit(
    const v1::CommitCheckpointRequest& request) {
  KRONSERVE_ASSIGN_OR_RETURN(const JobState* const job, FindCutJob(request));
  const v1::JobConfig& config = job->config();
  if (request.world_version() != config.world().version()) {
    return absl::AbortedError(absl::StrCat(
        "checkpoint '", request.id(), "' is of world ", request.world_version(),
        ", the job is in ", config.world().version()));
  }
  v1::CheckpointManifest manifest;
  manifest.set_job(config.job());
  manifest.set_id(request.id());
  manifest.set_run_id(config.world().run_id());
  manifest.set_world_version(config.world().version());
  manifest.set_step(request.step());
  *manifest.mutable_layers() = config.layers();
  *manifest.mutable_options() = config.options();
  *manifest.mutable_files() = request.files();
  return manifest;
}

}  // namespace kronserve::server
