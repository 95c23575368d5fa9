#include "server/server_core.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/limits.h"

namespace kronserve::server {
namespace {

absl::Status CheckCallHeader(const v1::CallHeader& call) {
  if (call.job().empty()) {
    return absl::InvalidArgumentError("call header: no job");
  }
  if (call.world_version() < 1 || call.epoch() < 1 || !IsStep(call.step()) ||
      call.incarnation() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "call header: world_version ", call.world_version(), ", epoch ",
        call.epoch(), ", step ", call.step(), ", incarnation ",
        call.incarnation(), "; expected at least 1, at least 1, 0 to ",
        kMaxStep, " and not 0"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string NameContribution(const LayerState& layer, v1::FactorKind kind,
                             int64_t step) {
  return absl::StrCat("layer '", layer.rules().name, "', factor ",
                      kind == v1::FACTOR_KIND_INPUT ? "A" : "G", ", step ",
                      step);
}

ServerCore::ServerCore(CoreOptions options)
    : options_(std::move(options)),
      memory_(options_.memory_limit_bytes),
      staging_(options_.staging_limit_bytes) {}

absl::StatusOr<JobState*> ServerCore::FindJob(const v1::CallHeader& call,
                                              absl::Time now,
                                              Effects* effects) {
  KRONSERVE_RETURN_IF_ERROR(CheckCallHeader(call));
  const auto it = jobs_.find(call.job());
  if (it != jobs_.end()) {
    JobState& job = *it->second;
    const absl::Status fences = job.CheckFences(call);
    if (absl::IsUnavailable(fences)) effects->behind = true;
    if (!fences.ok()) return fences;
    if (call.epoch() > job.epoch()) effects->behind = true;
    job.SeeStep(call);
    if (job.SeeBegun(call.step())) AdvanceEnding(job, now, effects);
    return &job;
  }
  if (finished_.Contains(call.job(), call.world_version())) {
    return absl::NotFoundError(absl::StrCat("job '", call.job(), "', world ",
                                            call.world_version(),
                                            ": it has finished"));
  }
  effects->behind = true;
  return absl::UnavailableError(absl::StrCat("job '", call.job(),
                                             "' is not known to server '",
                                             options_.name, "' yet; retry"));
}

HeldLayer* ServerCore::FindHeld(const LayerKey& key) {
  const auto it = jobs_.find(key.job);
  if (it == jobs_.end()) return nullptr;
  HeldLayer* layer = it->second->FindLayer(key.layer);
  return layer != nullptr && layer->instance == key.instance ? layer : nullptr;
}

void ServerCore::Account(const JobState& job, const HeldLayer& layer,
                         const ClosedRound& closed, Effects* effects) {
  const ContributionCounts& counts = closed.counts;
  counters_.set_contributions_empty(counters_.contributions_empty() +
                                    counts.empty);
  counters_.set_contributions_void(counters_.contributions_void() +
                                   counts.voided);
  counters_.set_contributions_late(counters_.contributions_late() +
                                   counts.late);
  if (closed.how != CloseAs::kDrop) return;
  counters_.set_rounds_dropped(counters_.rounds_dropped() + 1);
  effects->warnings.push_back(absl::StrCat(
      "round dropped before it was complete: job '", job.name(), "', layer '",
      layer.state.rules().name, "', step ", closed.step));
}

void ServerCore::GiveUpRound(const JobState& job, const HeldLayer& layer,
                             const ClosedRound& closed, Effects* effects) {
  staging_.Release(closed.staged_bytes);
  Account(job, layer, closed, effects);
}

void ServerCore::CloseRounds(JobState& job, HeldLayer& layer, absl::Time now,
                             Effects* effects) {
  LayerState& state = layer.state;
  if (layer.is_leaving() && job.IsOver(layer, layer.until_step)) {
    state.rounds().CloseBefore(layer.until_step);
  }
  const std::optional<int64_t> cut = job.CutOf(layer);
  if (cut.has_value() && job.IsOver(layer, *cut + 1)) {
    state.rounds().CloseBefore(*cut + 1);
  }
  for (ClosedRound& closed : state.rounds().Close(job.ledger(), now)) {
    Account(job, layer, closed, effects);
    layer.newest_step = std::max(layer.newest_step, closed.step);
    if (closed.how == CloseAs::kMerge && !closed.a.empty()) {
      state.QueueMerge(std::move(closed));
    } else {
      staging_.Release(closed.staged_bytes);
    }
  }
  // What waits for the state must leave it room to come.
  while (layer.is_awaited() &&
         state.num_merges() > state.rules().rounds.max_open) {
    GiveUpRound(job, layer, state.DropOldestMerge(), effects);
  }
}

void ServerCore::Advance(JobState& job, HeldLayer& layer, absl::Time now,
                         Effects* effects) {
  CloseRounds(job, layer, now, effects);
  if (layer.is_awaited()) {
    if (layer.wait_spent) RefuseWaiting(layer, effects);
    return;
  }
  LayerState& state = layer.state;
  const LayerKey key{job.name(), layer.index, layer.instance};
  // Nothing after the step of a checkpoint comes in before it is taken.
  const int64_t through =
      job.CutOf(layer).value_or(std::numeric_limits<int64_t>::max());
  if (auto input = state.StartMerge(through)) {
    effects->merges.push_back({key, *std::move(input)});
  }
  if (auto input = state.StartRefresh(std::min(layer.newest_step, through))) {
    effects->refreshes.push_back({key, *std::move(input)});
  }
  AnswerWaiting(job, layer, effects);
  if (WriteCut(job, layer, now, effects)) {
    Advance(job, layer, now, effects);  // What the cut has held back.
    return;
  }
  WriteBackground(job, layer, now, effects);
  HandOver(job, layer, now, effects);
}

void ServerCore::AdvanceEnding(JobState& job, absl::Time now,
                               Effects* effects) {
  for (auto& [index, layer] : job.layers()) {
    if (layer.is_leaving() || job.CutOf(layer).has_value()) {
      Advance(job, layer, now, effects);
    }
  }
}

void ServerCore::AdvanceAll(JobState& job, absl::Time now, Effects* effects) {
  for (auto& [index, layer] : job.layers()) Advance(job, layer, now, effects);
}

void ServerCore::FinishMerge(const LayerKey& key,
                             absl::StatusOr<Averages> result, absl::Time now,
                             Effects* effects) {
  HeldLayer* layer = FindHeld(key);
  if (layer == nullptr) return;
  JobState& job = *jobs_[key.job];
  const absl::Status status = result.status();
  const ClosedRound closed = layer->state.FinishMerge(std::move(result));
  staging_.Release(closed.staged_bytes);
  if (status.ok()) {
    counters_.set_rounds_merged(counters_.rounds_merged() + 1);
    if (closed.partial) {
      counters_.set_rounds_partial(counters_.rounds_partial() + 1);
    }
    counters_.set_contributions_merged(counters_.contributions_merged() +
                                       closed.counts.merged);
  } else {
    // The sums were finite one by one, but not together.
    counters_.set_rounds_dropped(counters_.rounds_dropped() + 1);
    counters_.set_contributions_refused(counters_.contributions_refused() +
                                        closed.counts.merged);
    effects->warnings.push_back(
        absl::StrCat("round could not be merged: job '", job.name(),
                     "', layer '", layer->state.rules().name, "', step ",
                     closed.step, ": ", std::string(status.message())));
  }
  Advance(job, *layer, now, effects);
}

void ServerCore::CountRefresh(
    const curvature::Factorization<float>& factorization) {
  counters_.set_refreshes(counters_.refreshes() + 1);
  if (factorization.split.clipped) {
    counters_.set_pi_clipped(counters_.pi_clipped() + 1);
  }
  switch (factorization.rung) {
    case curvature::Rung::kDirect:
      break;
    case curvature::Rung::kDouble:
      counters_.set_refreshes_double(counters_.refreshes_double() + 1);
      break;
    case curvature::Rung::kEigen:
      counters_.set_refreshes_eigen(counters_.refreshes_eigen() + 1);
      break;
    case curvature::Rung::kMoreDamping:
      counters_.set_refreshes_more_damping(counters_.refreshes_more_damping() +
                                           1);
      break;
  }
}

void ServerCore::FinishRefresh(
    const LayerKey& key, absl::StatusOr<curvature::Factorization<float>> result,
    absl::Time now, Effects* effects) {
  HeldLayer* layer = FindHeld(key);
  if (layer == nullptr) return;
  if (result.ok()) {
    CountRefresh(*result);
  } else {
    counters_.set_refreshes_failed(counters_.refreshes_failed() + 1);
    effects->warnings.push_back(
        absl::StrCat("refresh failed: job '", key.job, "', layer '",
                     layer->state.rules().name,
                     "': ", std::string(result.status().message())));
  }
  layer->state.FinishRefresh(std::move(result));
  Advance(*jobs_[key.job], *layer, now, effects);
}

void ServerCore::Tick(absl::Time now, Effects* effects) {
  for (auto& [name, job] : jobs_) {
    for (auto& [index, layer] : job->layers()) {
      if (NextDeadlineOf(layer) <= now) TickLayer(*job, layer, now, effects);
    }
  }
  std::vector<uint64_t> expired;
  for (const auto& [id, request] : requests_) {
    if (request.deadline <= now) expired.push_back(id);
  }
  for (uint64_t id : expired) ExpireRequest(id, effects);
}

void ServerCore::TickLayer(JobState& job, HeldLayer& layer, absl::Time now,
                           Effects* effects) {
  if (layer.handover.retry_at <= now) {
    layer.handover.retry_at = absl::InfinitePast();
  }
  Advance(job, layer, now, effects);
}

absl::Time ServerCore::NextDeadlineOf(const HeldLayer& layer) const {
  absl::Time next =
      std::min(layer.state.rounds().NextDeadline(), BackgroundDue(layer));
  const bool retries = layer.is_leaving() && layer.handover.attempt == 0 &&
                       layer.handover.retry_at != absl::InfinitePast();
  return retries ? std::min(next, layer.handover.retry_at) : next;
}

absl::Time ServerCore::NextDeadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [name, job] : jobs_) {
    for (const auto& [index, layer] : job->layers()) {
      next = std::min(next, NextDeadlineOf(layer));
    }
  }
  for (const auto& [id, request] : requests_) {
    next = std::min(next, request.deadline);
  }
  return next;
}

v1::GetServerStatusResponse ServerCore::Status() const {
  v1::GetServerStatusResponse status;
  status.set_name(options_.name);
  status.set_incarnation(options_.incarnation);
  *status.mutable_counters() = counters_;
  status.set_predicted_bytes(memory_.predicted_total());
  status.set_memory_limit_bytes(memory_.limit());
  status.set_staged_bytes(staging_.staged());
  for (const auto& [name, job] : jobs_) {
    for (const auto& [index, layer] : job->layers()) {
      v1::LayerStatus* entry = status.add_layers();
      entry->set_job(name);
      entry->set_layer(layer.state.rules().name);
      entry->set_updates(layer.state.updates());
      entry->set_closed_through(layer.state.rounds().closed_through());
      entry->set_open_rounds(layer.state.rounds().num_open());
      entry->set_phase(layer.phase);
      const auto& published = layer.state.published();
      entry->set_version(published == nullptr ? 0 : published->version);
    }
  }
  return status;
}

namespace {

v1::JobHeld HeldOf(const JobState& job) {
  v1::JobHeld held;
  held.set_epoch(job.epoch());
  held.set_world_version(job.world_version());
  for (const auto& [index, layer] : job.layers()) {
    if (layer.is_to_leave()) {
      held.add_leaving(index);
    } else if (layer.is_awaited()) {
      held.add_awaited(index);
    }
  }
  for (const auto& [index, recovery] : job.recoveries()) {
    *held.add_recoveries() = recovery;
  }
  if (const auto step = job.newest_step()) held.set_newest_step(*step);
  return held;
}

}  // namespace

std::vector<v1::JobHeld> ServerCore::Held(bool with_config) const {
  std::vector<v1::JobHeld> held;
  for (const auto& [name, job] : jobs_) {
    v1::JobHeld& entry = held.emplace_back(HeldOf(*job));
    entry.set_job(name);
    if (with_config) *entry.mutable_config() = job->config();
  }
  return held;
}

void ServerCore::SeeProgress(
    const google::protobuf::RepeatedPtrField<v1::JobProgress>& jobs,
    absl::Time now, Effects* effects) {
  for (const v1::JobProgress& progress : jobs) {
    const auto it = jobs_.find(progress.job());
    if (it == jobs_.end()) continue;
    JobState& job = *it->second;
    if (progress.world_version() != job.world_version()) continue;
    if (job.SeeBegun(progress.step())) AdvanceEnding(job, now, effects);
  }
}

const HeldLayer* ServerCore::FindHeldLayer(const std::string& job,
                                           int layer) const {
  const auto it = jobs_.find(job);
  return it == jobs_.end() ? nullptr : it->second->FindLayer(layer);
}

const LayerState* ServerCore::FindLayerState(const std::string& job,
                                             int layer) const {
  const HeldLayer* held = FindHeldLayer(job, layer);
  return held == nullptr ? nullptr : &held->state;
}

}  // namespace kronserve::server
