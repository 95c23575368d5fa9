// ServerCore: layers come from other servers and go to them.

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/server_core.h"

namespace kronserve::server {
namespace {

constexpr absl::Duration kFirstRetry = absl::Milliseconds(50);
constexpr absl::Duration kLongestRetry = absl::Seconds(1);

absl::Status CheckTransferHeader(const v1::TransferLayerHeader& header) {
  if (!header.job().empty() && !header.source().empty() &&
      header.world_version() >= 1 && header.epoch() >= 1 &&
      header.incarnation() != 0 && header.has_snapshot()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "transfer header: job '", header.job(), "', source '", header.source(),
      "', world_version ", header.world_version(), ", epoch ", header.epoch(),
      ", incarnation ", header.incarnation(),
      header.has_snapshot() ? "" : ", no snapshot",
      "; expected names, at least 1, at least 1, not 0 and a snapshot"));
}

// How messages name a layer that moves.
std::string NameLayer(const JobState& job, int index) {
  return absl::StrCat("job '", job.name(), "', layer '",
                      job.config().layers(index).name(), "'");
}

// Whether the snapshot is one of a layer of this job. That of a repeat must be
// one too: the bytes that it lists are counted, though they are dropped.
absl::Status CheckState(const JobState& job,
                        const v1::TransferLayerHeader& header) {
  const v1::LayerSnapshot& snapshot = header.snapshot();
  const int index = snapshot.layer_index();
  const v1::JobConfig& config = job.config();
  if (index < 0 || index >= config.layers_size() ||
      snapshot.job() != header.job()) {
    return absl::InvalidArgumentError(
        absl::StrCat("transfer of job '", header.job(), "' brings layer ",
                     index, " of job '", snapshot.job(), "'"));
  }
  absl::Status status =
      CheckSnapshot(snapshot, config.layers(index), config.options());
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(NameLayer(job, index), ", sent by '", header.source(),
                   "': ", std::string(status.message())));
}

}  // namespace

absl::StatusOr<JobState*> ServerCore::FindMovingJob(
    const v1::TransferLayerHeader& header, Effects* effects) {
  KRONSERVE_RETURN_IF_ERROR(CheckTransferHeader(header));
  const auto it = jobs_.find(header.job());
  if (it == jobs_.end() &&
      finished_.Contains(header.job(), header.world_version())) {
    return absl::NotFoundError(
        absl::StrCat("job '", header.job(), "' has finished"));
  }
  if (it == jobs_.end() ||
      header.world_version() > it->second->world_version() ||
      header.epoch() > it->second->epoch()) {
    effects->behind = true;
    return absl::UnavailableError(
        absl::StrCat("job '", header.job(), "': world ", header.world_version(),
                     ", epoch ", header.epoch(), " is not known to server '",
                     options_.name, "' yet; retry"));
  }
  KRONSERVE_RETURN_IF_ERROR(CheckState(*it->second, header));
  return it->second.get();
}

// Whether a transfer is a repeat of the one that brought the layer.
bool ServerCore::IsInstalled(const HeldLayer& layer,
                             const v1::TransferLayerHeader& header) {
  return layer.phase == v1::LAYER_PHASE_OWNED &&
         layer.source == header.source() && header.epoch() >= layer.since_epoch;
}

// Whether the layer is awaited from this sender, from this step on.
absl::Status ServerCore::CheckTransfer(
    JobState& job, const v1::TransferLayerHeader& header) const {
  const v1::LayerSnapshot& snapshot = header.snapshot();
  const std::string what =
      absl::StrCat(NameLayer(job, snapshot.layer_index()), ", sent by '",
                   header.source(), "' in epoch ", header.epoch());
  const HeldLayer* layer = job.FindLayer(snapshot.layer_index());
  const v1::ServerAddress* sender = job.FindServer(header.source());
  if (layer == nullptr || !layer->is_awaited() ||
      layer->source != header.source() || header.epoch() < layer->since_epoch ||
      header.world_version() != job.world_version() ||
      (sender != nullptr && sender->incarnation() != header.incarnation())) {
    return job.AbortedWithAssignment(
        absl::StrCat(what, ", world ", header.world_version(),
                     ", is not awaited by '", options_.name, "' in world ",
                     job.world_version(), ", epoch ", job.epoch()));
  }
  if (snapshot.closed_through() < layer->from_step - 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, ": closed through step ", snapshot.closed_through(),
        ", it is to be answered here from step ", layer->from_step));
  }
  return absl::OkStatus();
}

absl::StatusOr<TransferTicket> ServerCore::BeginTransfer(
    const v1::TransferLayerHeader& header, Effects* effects) {
  KRONSERVE_ASSIGN_OR_RETURN(JobState* const job,
                             FindMovingJob(header, effects));
  TransferTicket ticket;
  const HeldLayer* layer = job->FindLayer(header.snapshot().layer_index());
  ticket.installed = layer != nullptr && IsInstalled(*layer, header);
  if (!ticket.installed) {
    KRONSERVE_RETURN_IF_ERROR(CheckTransfer(*job, header));
    ticket.layer = job->config().layers(layer->index);
    ticket.options = job->config().options();
  }
  for (const v1::SnapshotTensor& tensor : header.snapshot().tensors()) {
    ticket.slots.push_back({tensor.elements(), !ticket.installed});
    if (ticket.installed) continue;
    ticket.reserved_bytes +=
        tensor.elements() * static_cast<int64_t>(sizeof(float));
  }
  if (const absl::Status status = staging_.Reserve(ticket.reserved_bytes);
      !status.ok()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(NameLayer(*job, header.snapshot().layer_index()), ": ",
                     std::string(status.message())));
  }
  return ticket;
}

void ServerCore::AbandonTransfer(const TransferTicket& ticket) {
  staging_.Release(ticket.reserved_bytes);
}

// The state of a layer that was awaited is here.
void ServerCore::Install(JobState& job, HeldLayer& layer,
                         const LayerContents& contents, bool same_world,
                         Effects* effects) {
  for (const ClosedRound& closed : layer.state.Install(contents, same_world)) {
    GiveUpRound(job, layer, closed, effects);
  }
  layer.newest_step =
      std::max(layer.newest_step, layer.state.rounds().closed_through());
}

absl::StatusOr<v1::TransferLayerResponse> ServerCore::InstallLayer(
    const TransferTicket& ticket, const v1::TransferLayerHeader& header,
    absl::StatusOr<LayerContents> contents, absl::Time now, Effects* effects) {
  AbandonTransfer(ticket);
  KRONSERVE_ASSIGN_OR_RETURN(JobState* const job,
                             FindMovingJob(header, effects));
  v1::TransferLayerResponse response;
  response.set_epoch(job->epoch());
  HeldLayer* layer = job->FindLayer(header.snapshot().layer_index());
  if (layer != nullptr && IsInstalled(*layer, header)) return response;
  KRONSERVE_RETURN_IF_ERROR(CheckTransfer(*job, header));
  if (!contents.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        NameLayer(*job, layer->index), ", sent by '", header.source(),
        "': ", std::string(contents.status().message())));
  }
  Install(*job, *layer, *contents, /*same_world=*/true, effects);
  layer->phase = v1::LAYER_PHASE_OWNED;
  // The old owner answered the steps before; whoever lost that answer may ask
  // here for the same bytes.
  layer->from_step = 0;
  counters_.set_layers_received(counters_.layers_received() + 1);
  effects->behind = true;  // The scheduler learns that the move is over.
  Advance(*job, *layer, now, effects);
  return response;
}

// Sends a layer that leaves, once nothing of the steps before is open.
void ServerCore::HandOver(JobState& job, HeldLayer& layer, absl::Time now,
                          Effects* effects) {
  Handover& handover = layer.handover;
  if (!layer.is_leaving() || handover.attempt != 0 || handover.retry_at > now ||
      !job.IsOver(layer, layer.until_step)) {
    return;
  }
  CloseRounds(job, layer, now, effects);
  const v1::ServerAddress* target = job.FindServer(layer.target);
  if (target == nullptr || !layer.state.IsQuiet()) return;
  for (const auto& [attempt, receiver] : transfers_) {
    if (receiver == target->incarnation()) return;
  }
  handover.attempt = next_attempt_++;
  handover.retry_at = absl::InfinitePast();
  transfers_[handover.attempt] = target->incarnation();
  TransferTask task;
  task.key = {job.name(), layer.index, layer.instance};
  task.attempt = handover.attempt;
  task.target = *target;
  task.contents = job.Contents(layer, layer.state.rounds().closed_through());
  task.header.set_job(job.name());
  task.header.set_world_version(job.world_version());
  task.header.set_epoch(job.epoch());
  task.header.set_source(options_.name);
  task.header.set_incarnation(options_.incarnation);
  effects->transfers.push_back(std::move(task));
}

void ServerCore::FinishTransfer(const LayerKey& key, uint64_t attempt,
                                const absl::Status& status, absl::Time now,
                                Effects* effects) {
  transfers_.erase(attempt);
  HeldLayer* layer = FindHeld(key);
  // A newer assignment or world has ended an older attempt.
  if (layer != nullptr && layer->handover.attempt == attempt) {
    JobState& job = *jobs_[key.job];
    if (status.ok()) {
      DropHandedOver(job, key.layer, effects);
    } else {
      RetryLater(job, *layer, status, now, effects);
    }
  }
  // The receiver is free for the next one.
  for (auto& [name, job] : jobs_) AdvanceEnding(*job, now, effects);
}

void ServerCore::DropHandedOver(JobState& job, int index, Effects* effects) {
  HeldLayer layer = std::move(job.layers().at(index));
  job.layers().erase(index);
  job.recoveries().erase(index);
  ReleaseLayer(layer,
               absl::StrCat("'", layer.target, "' has taken the layer over"),
               effects);
  // Less than before: always admitted.
  (void)Admit(&job, job.config());
  counters_.set_layers_handed_over(counters_.layers_handed_over() + 1);
  effects->behind = true;
}

void ServerCore::RetryLater(const JobState& job, HeldLayer& layer,
                            const absl::Status& status, absl::Time now,
                            Effects* effects) {
  Handover& handover = layer.handover;
  handover.attempt = 0;
  handover.delay = std::clamp(2 * handover.delay, kFirstRetry, kLongestRetry);
  handover.retry_at = now + handover.delay;
  // Whatever is wrong, the scheduler may know better by now.
  effects->behind = true;
  const std::string failure(status.message());
  if (std::exchange(handover.failure, failure) == failure) return;
  effects->warnings.push_back(absl::StrCat(
      "layer could not be handed over yet: ", NameLayer(job, layer.index),
      " to '", layer.target, "': ", failure));
}

}  // namespace kronserve::server
