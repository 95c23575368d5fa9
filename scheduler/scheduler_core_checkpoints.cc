// Job checkpoints: one cut, a file per layer from its owner, then the manifest.

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "scheduler/limits.h"
#include "scheduler/scheduler_core.h"

namespace kronserve::scheduler {
namespace {

// Checkpoints of a job that are remembered, so that a repeated call is known.
constexpr int kRememberCheckpoints = 8;
constexpr size_t kMaxIdBytes = 64;
// The commit is no question to one server in particular.
constexpr char kCommit[] = "";

absl::Status CheckId(const std::string& id) {
  const bool good_bytes = std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  });
  const bool names_a_folder =
      !id.empty() && id.size() <= kMaxIdBytes && id.front() != '.';
  if (good_bytes && names_a_folder) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("checkpoint id '", id.substr(0, kMaxIdBytes),
                   "' is not 1 to 64 of [A-Za-z0-9._-], not beginning with a "
                   "dot"));
}

// It may be done yet, by the same server or another one.
bool MayRetry(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kNotFound:
      return true;
    default:
      return false;
  }
}

absl::StatusOr<v1::CheckpointJobResponse> Describe(
    const v1::StoredCheckpoint& known, const Job& job) {
  v1::CheckpointJobResponse response;
  response.set_step(known.step());
  response.set_layers(static_cast<int64_t>(job.layers.size()));
  switch (known.state()) {
    case v1::STORED_CHECKPOINT_STATE_COMPLETE:
      response.set_state(v1::CHECKPOINT_STATE_COMPLETE);
      response.set_layers_written(response.layers());
      return response;
    case v1::STORED_CHECKPOINT_STATE_WRITING:
      response.set_state(v1::CHECKPOINT_STATE_WRITING);
      response.set_layers_written(job.checkpoint.num_files());
      return response;
    default:
      return absl::DataLossError(
          absl::StrCat("checkpoint '", known.id(), "' of job '", job.name,
                       "' after step ", known.step(), ": ", known.failure()));
  }
}

// Its step was named and may never be reached; nobody has written for it yet.
bool GivesWay(const v1::StoredCheckpoint& writing, const CheckpointRun& run,
              int64_t step) {
  return writing.at_step() && step < writing.step() && run.num_files() == 0;
}

absl::Status NotNow(const Job& job, const std::string& why) {
  return absl::FailedPreconditionError(
      absl::StrCat("job '", job.name, "': ", why));
}

}  // namespace

absl::StatusOr<v1::CheckpointJobResponse> SchedulerCore::CheckpointJob(
    const v1::CheckpointJobRequest& request, absl::Time now) {
  KRONSERVE_RETURN_IF_ERROR(CheckId(request.id()));
  Job* job = FindJob(request.job());
  if (job == nullptr || job->finished) return UnknownJob(request.job());
  for (const v1::StoredCheckpoint& known : job->wishes.checkpoints()) {
    if (known.id() == request.id()) return Describe(known, *job);
  }
  KRONSERVE_RETURN_IF_ERROR(CheckCut(*job, request, now));
  const int64_t step = CutStep(*job, request);
  EndCheckpoint(job, absl::AbortedError(absl::StrCat(
                         "it gave way to '", request.id(),
                         "', which is cut earlier, after step ", step)));
  auto* checkpoints = job->wishes.mutable_checkpoints();
  if (checkpoints->size() >= kRememberCheckpoints) {
    checkpoints->DeleteSubrange(0, 1);
  }
  v1::StoredCheckpoint* checkpoint = checkpoints->Add();
  checkpoint->set_id(request.id());
  checkpoint->set_step(step);
  checkpoint->set_at_step(request.has_step());
  checkpoint->set_state(v1::STORED_CHECKPOINT_STATE_WRITING);
  job->checkpoint = CheckpointRun();
  Note(LogLevel::kInfo,
       absl::StrCat("job '", job->name, "': checkpoint '", request.id(),
                    "' is cut after step ", step));
  Save(job);
  return Describe(*checkpoint, *job);
}

int64_t SchedulerCore::CutStep(const Job& job,
                               const v1::CheckpointJobRequest& request) const {
  if (request.has_step()) return request.step();
  int64_t step = MoveStep(job);
  for (const v1::LayerOwner& owner : job.config.assignment().owners()) {
    step = std::max(step, owner.from_step());
  }
  return step;
}

absl::Status SchedulerCore::CheckCut(const Job& job,
                                     const v1::CheckpointJobRequest& request,
                                     absl::Time now) const {
  const v1::StoredCheckpoint* writing = job.WritingCheckpoint();
  if (writing != nullptr &&
      !GivesWay(*writing, job.checkpoint, CutStep(job, request))) {
    return NotNow(job,
                  absl::StrCat("checkpoint '", writing->id(), "' after step ",
                               writing->step(), " is being written"));
  }
  if (job.State(now) != v1::JOB_STATE_RUNNING) {
    return NotNow(job, "it is not running: there is no step to cut after");
  }
  if (job.layers.empty()) return NotNow(job, "it has no layers");
  if (job.num_ownerless() > 0) {
    return NotNow(job,
                  absl::StrCat(job.num_ownerless(), " layers have no owner"));
  }
  for (const LayerPlace& place : job.layers) {
    const ServerMember* owner = membership_.Find(place.owner);
    if (owner == nullptr || owner->state_recovery != v1::STATE_RECOVERY_NONE) {
      continue;
    }
    return NotNow(job, absl::StrCat("server '", place.owner,
                                    "' has no checkpoint directory that all "
                                    "share: ",
                                    owner->state_recovery_message));
  }
  if (!request.has_step()) {
    if (job.pace.known()) return absl::OkStatus();
    // A cut chosen now might be past when its owners hear of it.
    return absl::UnavailableError(
        absl::StrCat("job '", job.name,
                     "' has just begun, and how fast it steps is not known "
                     "yet; retry in a second"));
  }
  if (request.step() > kMaxNumber) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", request.step(), " is out of range"));
  }
  int64_t earliest = job.Progress(now);
  for (size_t i = 0; i < job.layers.size(); ++i) {
    if (!job.layers[i].moving()) continue;
    earliest = std::max(
        earliest,
        job.config.assignment().owners(static_cast<int>(i)).from_step());
  }
  if (request.step() >= earliest) return absl::OkStatus();
  return NotNow(job, absl::StrCat("step ", request.step(),
                                  " is too early to cut after, the earliest "
                                  "is ",
                                  earliest));
}

void SchedulerCore::SendCheckpoint(Job* job, absl::Time now) {
  const v1::StoredCheckpoint* writing = job->WritingCheckpoint();
  if (writing == nullptr || !job->durable || !job->roster.formed()) return;
  if (!job->roster.AnyAlive(now)) {
    EndCheckpoint(job, absl::DataLossError("all ranks were gone before it was "
                                           "complete"));
    return;
  }
  if (!membership_.Awaited().empty()) return;
  std::set<std::string> owners;
  for (size_t i = 0; i < job->layers.size(); ++i) {
    if (job->checkpoint.Has(static_cast<int>(i))) continue;
    owners.insert(job->layers[i].owner);
  }
  if (owners.empty()) {
    SendCommit(job, now);
    return;
  }
  for (const std::string& owner : owners) {
    const ServerMember* member = membership_.Find(owner);
    if (member == nullptr || !member->usable()) continue;
    if (!job->checkpoint.Due(owner, now)) continue;
    WriteCheckpointEffect effect;
    effect.ticket = NewTicket({Pending::Kind::kWrite, job->name,
                               member->address, job->epoch(), writing->id()});
    effect.server = member->address;
    effect.request.set_term(term_);
    effect.request.set_job(job->name);
    effect.request.set_world_version(job->world_version());
    effect.request.set_epoch(job->epoch());
    effect.request.set_id(writing->id());
    effect.request.set_step(writing->step());
    effects_.push_back(std::move(effect));
    job->checkpoint.Sent(owner, now);
  }
}

void SchedulerCore::CheckpointWritten(
    uint64_t ticket,
    const absl::StatusOr<v1::WriteCheckpointResponse>& response,
    absl::Time now) {
  const auto found = pending_.find(ticket);
  if (found == pending_.end()) return;
  const Pending pending = std::move(found->second);
  pending_.erase(found);
  Job* job = FindJob(pending.job);
  if (job == nullptr) return;
  const v1::StoredCheckpoint* writing = job->WritingCheckpoint();
  if (writing == nullptr || writing->id() != pending.checkpoint) return;
  const std::string& server = pending.server.name();
  if (response.ok()) {
    job->checkpoint.Wrote(server, response->files(), now);
  } else if (MayRetry(response.status())) {
    job->checkpoint.Fail(server, now);
  } else {
    EndCheckpoint(job, response.status());
  }
  TickJob(job, now);
}

void SchedulerCore::SendCommit(Job* job, absl::Time now) {
  if (!job->checkpoint.Due(kCommit, now)) return;
  std::set<std::string> usable;
  for (const LayerPlace& place : job->layers) {
    const ServerMember* member = membership_.Find(place.owner);
    if (member != nullptr && member->usable()) usable.insert(place.owner);
  }
  if (usable.empty()) return;
  // Whoever answers will do.
  const int turn =
      job->checkpoint.failures(kCommit) % static_cast<int>(usable.size());
  const ServerMember* member =
      membership_.Find(*std::next(usable.begin(), turn));
  const v1::StoredCheckpoint* writing = job->WritingCheckpoint();
  CommitCheckpointEffect effect;
  effect.ticket = NewTicket({Pending::Kind::kCommit, job->name, member->address,
                             job->epoch(), writing->id()});
  effect.server = member->address;
  effect.request.set_term(term_);
  effect.request.set_job(job->name);
  effect.request.set_world_version(job->world_version());
  effect.request.set_id(writing->id());
  effect.request.set_step(writing->step());
  for (const v1::CheckpointFile& file : job->checkpoint.files()) {
    *effect.request.add_files() = file;
  }
  effects_.push_back(std::move(effect));
  job->checkpoint.Sent(kCommit, now);
}

void SchedulerCore::CommitDone(Job* job, const Pending& pending,
                               const absl::Status& status, absl::Time now) {
  const v1::StoredCheckpoint* writing = job->WritingCheckpoint();
  if (writing == nullptr || writing->id() != pending.checkpoint) return;
  if (!status.ok() && MayRetry(status)) {
    job->checkpoint.Fail(kCommit, now);
  } else {
    EndCheckpoint(job, status);
  }
}

void SchedulerCore::EndCheckpoint(Job* job, const absl::Status& result) {
  if (job->WritingCheckpoint() == nullptr) return;
  v1::StoredCheckpoint* last =
      job->wishes.mutable_checkpoints(job->wishes.checkpoints_size() - 1);
  last->set_state(result.ok() ? v1::STORED_CHECKPOINT_STATE_COMPLETE
                              : v1::STORED_CHECKPOINT_STATE_FAILED);
  last->set_failure(std::string(result.message()));
  job->checkpoint = CheckpointRun();
  Note(result.ok() ? LogLevel::kInfo : LogLevel::kError,
       absl::StrCat(
           "job '", job->name, "': checkpoint '", last->id(), "' after step ",
           last->step(),
           result.ok() ? " is complete" : " failed: ", result.message()));
  // Moves may have waited for it.
  job->needs_moves = true;
  Save(job);
}

absl::StatusOr<v1::RestoreJobResponse> SchedulerCore::RestoreJob(
    const v1::RestoreJobRequest& request, absl::Time) {
  if (!request.id().empty()) KRONSERVE_RETURN_IF_ERROR(CheckId(request.id()));
  Job* job = FindJob(request.job());
  if (job == nullptr || job->finished) return UnknownJob(request.job());
  job->wishes.set_restore_next(request.id());
  Note(LogLevel::kInfo,
       absl::StrCat("job '", job->name, "': the next world starts ",
                    request.id().empty() ? "as usual"
                                         : absl::StrCat("from checkpoint '",
                                                        request.id(), "'")));
  Save(job);
  return v1::RestoreJobResponse();
}

}  // namespace kronserve::scheduler
