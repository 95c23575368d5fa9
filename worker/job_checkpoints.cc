#include "worker/job_checkpoints.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/names.h"
#include "checkpoint/trainer_file.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace kronserve::worker {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(1);

bool MayRetry(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

std::string TrainerFile(const std::string& directory, const std::string& job,
                        const std::string& id) {
  return absl::StrCat(checkpoint::CheckpointFolder(directory, job, id), "/",
                      checkpoint::kTrainerName);
}

absl::StatusOr<int64_t> ReadTrainerFile(const std::string& path,
                                        const TrainingStateParts& parts) {
  const auto bytes = checkpoint::ReadTrainerBytes(path);
  if (absl::IsNotFound(bytes.status())) {
    return absl::NotFoundError(
        absl::StrCat("trainer's part of the checkpoint: ",
                     std::string(bytes.status().message()),
                     ": was the checkpoint completed, and is the directory "
                     "the one of its run?"));
  }
  KRONSERVE_RETURN_IF_ERROR(bytes.status());
  absl::StatusOr<int64_t> next_step = DecodeTrainingState(*bytes, parts);
  if (next_step.ok()) return next_step;
  return absl::Status(
      next_step.status().code(),
      absl::StrCat("'", path, "': ", next_step.status().message()));
}

JobCheckpoints::JobCheckpoints(const Options& options,
                               std::unique_ptr<client::SchedulerApi> scheduler)
    : options_(options),
      scheduler_(std::move(scheduler)),
      thread_([this] { Run(); }) {}

JobCheckpoints::~JobCheckpoints() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void JobCheckpoints::AfterStep(int64_t step, const TrainingStateParts& parts) {
  if (!Took(step)) return;
  std::string state = EncodeTrainingState(step + 1, parts);
  MutexLock lock(&mu_);
  state_ = std::move(state);
  changed_.NotifyAll();
}

bool JobCheckpoints::Took(int64_t step) {
  MutexLock lock(&mu_);
  newest_ = step;
  if (id_.empty() && (step + 1) % options_.every == 0) {
    id_ = absl::StrCat("step", step + 1, "-",
                       absl::Hex(options_.incarnation >> 32, absl::kZeroPad8));
    cut_ = -1;
    state_.clear();
  }
  changed_.NotifyAll();
  return !id_.empty() && step == cut_;
}

bool JobCheckpoints::WaitUntilIdle(absl::Duration timeout) {
  const absl::Time deadline = SteadyClock().Now() + timeout;
  MutexLock lock(&mu_);
  while (!id_.empty() && newest_ >= cut_) {
    const absl::Duration left = deadline - SteadyClock().Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(&mu_, left);
  }
  return true;
}

void JobCheckpoints::Run() {
  for (;;) {
    const std::optional<std::string> asked = NextAsked();
    if (!asked.has_value()) return;
    const std::string& id = *asked;
    const absl::Status status = Write(id);
    MutexLock lock(&mu_);
    if (status.ok()) {
      Log(LogLevel::kInfo, "checkpoint is complete: resume with its id",
          {{"job", options_.job}, {"id", id}, {"step", cut_}});
    } else if (!stopping_) {
      Log(LogLevel::kWarning, "checkpoint failed",
          {{"job", options_.job},
           {"id", id},
           {"reason", std::string(status.message())}});
    }
    id_.clear();
    changed_.NotifyAll();
  }
}

std::optional<std::string> JobCheckpoints::NextAsked() {
  MutexLock lock(&mu_);
  while (id_.empty() && !stopping_) {
    changed_.WaitFor(&mu_, absl::Seconds(10));
  }
  if (stopping_) return std::nullopt;
  return id_;
}

// Follows one checkpoint to its end.
absl::Status JobCheckpoints::Write(const std::string& id) {
  v1::CheckpointJobRequest request;
  request.set_job(options_.job);
  request.set_id(id);
  const absl::Time deadline = SteadyClock().Now() + options_.patience;
  for (;;) {
    const auto answer = scheduler_->CheckpointJob(request, kCallTimeout);
    if (!answer.ok() && !MayRetry(answer.status())) return answer.status();
    const bool complete =
        answer.ok() && answer->state() == v1::CHECKPOINT_STATE_COMPLETE;
    MutexLock lock(&mu_);
    if (answer.ok() && cut_ != answer->step()) {
      cut_ = answer->step();
      changed_.NotifyAll();
    }
    if (cut_ >= 0 && newest_ > cut_ && state_.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the cut after step ", cut_, " was heard of at step ", newest_));
    }
    if (complete && !state_.empty()) break;
    if (SteadyClock().Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "not complete within ", absl::FormatDuration(options_.patience)));
    }
    changed_.WaitFor(&mu_, options_.poll);
    if (stopping_) return absl::CancelledError("the run has ended");
  }
  std::string state;
  {
    MutexLock lock(&mu_);
    state = std::move(state_);
    state_.clear();
  }
  return WriteFile(id, state);
}

absl::Status JobCheckpoints::WriteFile(const std::string& id,
                                       const std::string& state) {
  const std::string path = TrainerFile(options_.directory, options_.job, id);
  checkpoint::WriteCalls calls;
  checkpoint::Writer writer;
  writer.calls = &calls;
  writer.server = checkpoint::kTrainerWriter;
  writer.incarnation = options_.incarnation;
  checkpoint::DurableFile file(&writer, path,
                               static_cast<int64_t>(state.size()));
  KRONSERVE_RETURN_IF_ERROR(
      file.Append(state.data(), static_cast<int64_t>(state.size())));
  return file.Commit();
}

}  // namespace kronserve::worker
