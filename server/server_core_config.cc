// ServerCore: jobs come, change and go.

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/job_plan.h"
#include "server/server_core.h"

namespace kronserve::server {

absl::Status ServerCore::CheckTerm(uint64_t term) {
  if (term < 1) return absl::InvalidArgumentError("term is 0");
  if (term < term_) {
    return absl::AbortedError(absl::StrCat(
        "term ", term, " is over: this server has seen term ", term_));
  }
  term_ = term;
  return absl::OkStatus();
}

absl::StatusOr<v1::ConfigureJobResponse> ServerCore::ConfigureJob(
    const v1::ConfigureJobRequest& request, absl::Time now, Effects* effects) {
  KRONSERVE_RETURN_IF_ERROR(CheckConfigure(request));
  KRONSERVE_RETURN_IF_ERROR(CheckTerm(request.term()));
  const v1::JobConfig& config = request.config();
  const auto it = jobs_.find(config.job());
  if (it != jobs_.end()) {
    KRONSERVE_RETURN_IF_ERROR(Adopt(*it->second, config, now, effects));
  } else if (!finished_.Contains(config.job(), config.world().version())) {
    KRONSERVE_RETURN_IF_ERROR(Register(config, now, effects));
  }
  v1::ConfigureJobResponse response;
  response.set_predicted_bytes(memory_.predicted(config.job()));
  return response;
}

// Reserves memory for what this server would hold of the job; `job` is null
// when nothing of it is here.
absl::Status ServerCore::Admit(const JobState* job,
                               const v1::JobConfig& config) {
  const std::vector<int> layers = job == nullptr
                                      ? OwnedLayers(config, options_.name)
                                      : job->HeldUnder(config);
  return memory_.Admit(config.job(),
                       PredictBytes(config, layers, options_.refresh_threads));
}

absl::Status ServerCore::Register(const v1::JobConfig& config, absl::Time now,
                                  Effects* effects) {
  KRONSERVE_RETURN_IF_ERROR(Admit(nullptr, config));
  // What was here under this name belongs to another run.
  const auto before = jobs_.find(config.job());
  if (before != jobs_.end() &&
      before->second->config().world().run_id() != config.world().run_id()) {
    Forget(*before->second, effects);
  }
  Remove(config.job(), "another run has taken its name", effects);
  auto& job = jobs_[config.job()];
  job = std::make_unique<JobState>(config, options_.name, &next_instance_);
  BeginRestores(*job, now, effects);
  return absl::OkStatus();
}

// Takes a newer configuration of a job that is here; an older one changes
// nothing.
absl::Status ServerCore::Adopt(JobState& job, const v1::JobConfig& config,
                               absl::Time now, Effects* effects) {
  const int64_t world = config.world().version();
  const uint64_t epoch = config.assignment().epoch();
  if (world < job.world_version()) return absl::OkStatus();
  const bool new_world = world > job.world_version();
  if (new_world && job.IsReplacedBy(config)) {
    return Register(config, now, effects);
  }
  if (!new_world && epoch <= job.epoch()) return absl::OkStatus();
  if (epoch < job.epoch()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "job '", job.name(), "': world ", world, " comes with epoch ", epoch,
        ", world ", job.world_version(), " had epoch ", job.epoch()));
  }
  if (job.IsReplacedBy(config)) {
    return absl::InvalidArgumentError(
        absl::StrCat("job '", job.name(), "': layers, options or run of world ",
                     world, " changed with epoch ", epoch));
  }
  KRONSERVE_RETURN_IF_ERROR(Admit(&job, config));
  JobState::Change change = job.Adopt(config);
  for (HeldLayer& layer : change.lost) {
    ReleaseLayer(layer, absl::StrCat("epoch ", epoch, " has placed it anew"),
                 effects);
  }
  for (const ClosedRound& closed : change.dropped) {
    staging_.Release(closed.staged_bytes);
    counters_.set_contributions_empty(counters_.contributions_empty() +
                                      closed.counts.empty);
    counters_.set_contributions_late(counters_.contributions_late() +
                                     closed.counts.late);
    counters_.set_rounds_dropped(counters_.rounds_dropped() + 1);
  }
  for (uint64_t request : change.unanswered) {
    ReplyFallback(request, v1::FALLBACK_REASON_NOT_READY,
                  absl::StrCat("world ", world, " has replaced the call's"),
                  effects);
  }
  for (const auto& [index, layer] : job.layers()) {
    if (new_world) WarnIfAhead(job, layer, effects);
  }
  BeginRestores(job, now, effects);
  AdvanceAll(job, now, effects);
  return absl::OkStatus();
}

void ServerCore::WarnIfAhead(const JobState& job, const HeldLayer& layer,
                             Effects* effects) {
  const int64_t start_step = job.config().world().start_step();
  const LayerState& state = layer.state;
  if (state.factor_step() < start_step) return;
  effects->warnings.push_back(
      absl::StrCat("averages are ahead of the job: job '", job.name(),
                   "', layer '", state.rules().name, "', averages of step ",
                   state.factor_step(), ", job at ", start_step));
}

void ServerCore::ReleaseLayer(HeldLayer& layer, const std::string& why,
                              Effects* effects) {
  const LayerState::Staged staged = layer.state.ReleaseStaged();
  staging_.Release(staged.bytes);
  counters_.set_contributions_empty(counters_.contributions_empty() +
                                    staged.empty);
  if (staged.contributions > 0) {
    counters_.set_contributions_lost(counters_.contributions_lost() +
                                     staged.contributions);
    effects->warnings.push_back(absl::StrCat(
        staged.contributions, " contributions are lost with layer '",
        layer.state.rules().name, "', closed through step ",
        layer.state.rounds().closed_through(), ": ", why));
  }
  for (uint64_t request : layer.waiting) {
    ReplyFallback(request, v1::FALLBACK_REASON_NOT_READY, why, effects);
  }
}

// Nobody will want the background checkpoints of this run any more.
void ServerCore::Forget(const JobState& job, Effects* effects) const {
  if (!options_.has_checkpoints) return;
  effects->forgets.push_back({job.name(), job.config().world().run_id()});
}

void ServerCore::Remove(const std::string& name, const std::string& why,
                        Effects* effects) {
  const auto it = jobs_.find(name);
  if (it == jobs_.end()) return;
  for (auto& [index, layer] : it->second->layers()) {
    ReleaseLayer(layer, why, effects);
  }
  jobs_.erase(it);
}

absl::Status ServerCore::DropJob(const v1::DropJobRequest& request,
                                 Effects* effects) {
  if (request.job().empty()) {
    return absl::InvalidArgumentError("job has no name");
  }
  KRONSERVE_RETURN_IF_ERROR(CheckTerm(request.term()));
  const auto it = jobs_.find(request.job());
  if (it != jobs_.end() &&
      it->second->world_version() > request.world_version()) {
    return absl::OkStatus();
  }
  if (it != jobs_.end() && request.finished()) Forget(*it->second, effects);
  if (it != jobs_.end() && !request.finished()) {
    WriteAll(*it->second, effects);
  }
  finished_.Add(request.job(), request.world_version());
  Remove(request.job(), "the job has finished", effects);
  memory_.Release(request.job());
  return absl::OkStatus();
}

}  // namespace kronserve::server
