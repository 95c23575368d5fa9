#include "worker/training/trainer.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/checksum.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "worker/training/batches.h"
#include "worker/training/evaluation.h"
#include "worker/training/gradient_step.h"
#include "worker/training/replica_check.h"

namespace kronserve::worker {
namespace {

// "FALLBACK_REASON_TIMEOUT" as "timeout".
std::string ReasonName(v1::FallbackReason reason) {
  const std::string name = v1::FallbackReason_Name(reason);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "FALLBACK_REASON_"));
}

absl::Status AtStep(int64_t step, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("step ", step, ": ", status.message()));
}

// One call of Train().
class Run {
 public:
  Run(const TrainerOptions& options, const TrainerParts& parts)
      : options_(options),
        parts_(parts),
        schedule_(parts.dataset->train.rows(), options.batch, options.seed),
        gradient_step_(parts_),
        progress_(parts.progress != nullptr ? *parts.progress : own_progress_),
        summary_(progress_.summary) {
    const int64_t all = options.epochs * schedule_.steps_per_epoch();
    last_step_ = options.max_steps > 0 ? std::min(all, options.max_steps) : all;
    if (parts.session != nullptr && parts.precondition) {
      summary_.layers = static_cast<int>(parts.model->weights().size());
    }
  }

  absl::StatusOr<TrainingSummary> Train() {
    progress_.GoTo(options_.first_step);
    KRONSERVE_RETURN_IF_ERROR(OpenHashLog());
    KRONSERVE_RETURN_IF_ERROR(CheckRanksAgree());
    progress_.begun = true;
    if (options_.repeat_evaluation && options_.first_step > 0) {
      KRONSERVE_RETURN_IF_ERROR(EvaluateIfDue(options_.first_step - 1));
      if (summary_.end == TrainingSummary::End::kTargetReached) return summary_;
    }
    for (int64_t step = options_.first_step; step < last_step_; ++step) {
      KRONSERVE_RETURN_IF_ERROR(AtStep(step, Step(step)));
      if (summary_.end == TrainingSummary::End::kDiverged) return summary_;
      if (gradient_step_.stop_requested()) {
        summary_.end = TrainingSummary::End::kStopped;
        return summary_;
      }
      KRONSERVE_RETURN_IF_ERROR(EvaluateIfDue(step));
      if (summary_.end == TrainingSummary::End::kTargetReached) return summary_;
    }
    return summary_;
  }

 private:
  using Views = std::vector<linalg::MatrixView<float>>;

  absl::Status OpenHashLog() {
    if (options_.hash_log.empty()) return absl::OkStatus();
    hash_log_.open(options_.hash_log,
                   progress_.begun ? std::ios::app : std::ios::trunc);
    if (hash_log_) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("hash log '", options_.hash_log, "' cannot be written"));
  }

  // Ranks with other options would train apart or wait for one another; better
  // to say so first.
  absl::Status CheckRanksAgree() {
    if (parts_.group == nullptr) return absl::OkStatus();
    const StepSettings& settings = options_.settings;
    const std::string text = absl::StrCat(
        parts_.dataset->name, " ", parts_.dataset->train.rows(), " ",
        options_.batch, " ", options_.epochs, " ", options_.max_steps, " ",
        options_.first_step, " ", options_.eval_every, " ", options_.seed, " ",
        options_.lr, " ", options_.cosine, " ", options_.stop_at_target, " ",
        options_.verify_replicas, " ", settings.damping, " ",
        settings.factor_decay, " ", settings.kl_clip.value_or(0), " ",
        options_.target_accuracy.value_or(0), " ", options_.fingerprint, " ",
        HashParameters(parts_.model->parameters()));
    const uint64_t mine = Checksum(text.data(), text.size());
    std::vector<uint64_t> all(parts_.group->size());
    KRONSERVE_RETURN_IF_ERROR(
        parts_.group->AllGather(&mine, sizeof(mine), all.data()));
    for (size_t rank = 1; rank < all.size(); ++rank) {
      if (all[rank] == all[0]) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "rank ", rank, " has other training options, data or initial ",
          "parameters than rank 0: start all ranks with the same options"));
    }
    return absl::OkStatus();
  }

  absl::Status Step(int64_t step) {
    const absl::Time start = SteadyClock().Now();
    StepEvent event;
    event.step = step;
    event.epoch = schedule_.EpochOf(step);
    event.layers = summary_.layers;
    KRONSERVE_RETURN_IF_ERROR(gradient_step_.Compute(
        step, schedule_.Rows(step), options_.batch, options_.accumulation));
    const absl::Time computed = SteadyClock().Now();
    KRONSERVE_RETURN_IF_ERROR(gradient_step_.Average());
    event.exchanged = SteadyClock().Now() - computed;
    event.loss = summary_.last_loss = gradient_step_.loss();
    if (!std::isfinite(event.loss)) {
      summary_.end = TrainingSummary::End::kDiverged;
      return absl::OkStatus();
    }
    const double lr = RateAt(step);
    KRONSERVE_RETURN_IF_ERROR(Precondition(step, lr, &event));
    parts_.optimizer->Step(lr, parts_.model->parameters(),
                           gradient_step_.gradients());
    progress_.next_step = step + 1;
    ++summary_.steps;
    KRONSERVE_RETURN_IF_ERROR(CheckReplicas(step));
    CountStep(SteadyClock().Now() - start, &event);
    return absl::OkStatus();
  }

  double RateAt(int64_t step) const {
    if (!options_.cosine) return options_.lr;
    return options_.lr * 0.5 *
           (1 + std::cos(M_PI * double(step) / double(last_step_)));
  }

  absl::Status Precondition(int64_t step, double lr, StepEvent* event) {
    if (parts_.session == nullptr) return absl::OkStatus();
    StepSettings settings = options_.settings;
    settings.lr = lr;
    KRONSERVE_ASSIGN_OR_RETURN(
        const StepResult result,
        parts_.session->Step(
            step, settings,
            parts_.precondition ? gradient_step_.gradients() : Views()));
    if (!parts_.precondition) return absl::OkStatus();
    event->waited = result.waited;
    event->nu = result.nu;
    event->fallbacks = result.fallbacks;
    event->assignment_epoch = result.epoch;
    RecordFallbacks(step, result);
    return absl::OkStatus();
  }

  void RecordFallbacks(int64_t step, const StepResult& result) {
    FallbackEvent event{step, {}};
    std::vector<std::string> names;
    for (size_t layer = 0; layer < result.layers.size(); ++layer) {
      const LayerReport& report = result.layers[layer];
      if (report.preconditioned) continue;
      const std::string& name = parts_.model->weights()[layer]->shape.name;
      ++summary_.fallen_back[name];
      names.push_back(name);
      event.layers.push_back({name, ReasonName(report.reason), report.message});
    }
    summary_.layers_preconditioned = summary_.layers - int(names.size());
    if (!names.empty()) ++summary_.fallback_steps;
    if (names == progress_.falling_back) return;
    progress_.falling_back = std::move(names);
    if (parts_.observer != nullptr) parts_.observer->OnFallback(event);
  }

  absl::Status CheckReplicas(int64_t step) {
    if (!options_.verify_replicas && !hash_log_.is_open()) {
      return absl::OkStatus();
    }
    const uint64_t hash = HashParameters(parts_.model->parameters());
    if (hash_log_.is_open()) {
      hash_log_ << step << ' '
                << std::string(absl::StrCat(absl::Hex(hash, absl::kZeroPad16)))
                << std::endl;
      if (!hash_log_) {
        return absl::FailedPreconditionError(absl::StrCat(
            "hash log '", options_.hash_log, "' cannot be written"));
      }
    }
    if (!options_.verify_replicas || parts_.group == nullptr) {
      return absl::OkStatus();
    }
    return CheckSameHash(*parts_.group, step, hash);
  }

  void CountStep(absl::Duration took, StepEvent* event) {
    summary_.elapsed += took;
    summary_.waited += event->waited;
    summary_.exchanged += event->exchanged;
    event->elapsed = summary_.elapsed;
    if (parts_.observer != nullptr) parts_.observer->OnStep(*event);
  }

  bool EvaluatesAfter(int64_t step) const {
    const int64_t every = options_.eval_every > 0 ? options_.eval_every
                                                  : schedule_.steps_per_epoch();
    return (step + 1) % every == 0 || step + 1 == last_step_;
  }

  absl::Status EvaluateIfDue(int64_t step) {
    if (!EvaluatesAfter(step)) return absl::OkStatus();
    KRONSERVE_RETURN_IF_ERROR(AtStep(step, EvaluateAfter(step)));
    if (options_.stop_at_target && summary_.steps_to_target) {
      summary_.end = TrainingSummary::End::kTargetReached;
    }
    return absl::OkStatus();
  }

  absl::Status EvaluateAfter(int64_t step) {
    KRONSERVE_ASSIGN_OR_RETURN(
        const Evaluation result,
        Evaluate(*parts_.dataset, parts_.model, parts_.group));
    summary_.final_accuracy = result.accuracy;
    if (options_.target_accuracy && !summary_.steps_to_target &&
        result.accuracy >= *options_.target_accuracy) {
      summary_.steps_to_target = step + 1;
      summary_.time_to_target = summary_.elapsed;
    }
    if (parts_.observer != nullptr) {
      parts_.observer->OnEval({step + 1, schedule_.EpochOf(step), result.loss,
                               result.accuracy, summary_.elapsed});
    }
    return absl::OkStatus();
  }

  const TrainerOptions& options_;
  const TrainerParts& parts_;
  BatchSchedule schedule_;
  GradientStep gradient_step_;
  int64_t last_step_ = 0;
  std::ofstream hash_log_;
  TrainingProgress own_progress_;  // Where the caller keeps none.
  TrainingProgress& progress_;
  TrainingSummary& summary_;
};

absl::Status CheckBatch(const TrainerOptions& options,
                        const TrainerParts& parts) {
  const int64_t ranks = parts.group == nullptr ? 1 : parts.group->size();
  const int64_t rows = parts.dataset->train.rows();
  if (options.batch > rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch ", options.batch, " is larger than the ", rows,
                     " training rows of ", parts.dataset->name));
  }
  if (options.accumulation < 1 ||
      options.batch < ranks * options.accumulation) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch ", options.batch, " is too small for ", ranks,
                     " ranks of ", options.accumulation, " micro-batches"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TrainingSummary> Train(const TrainerOptions& options,
                                      const TrainerParts& parts) {
  KRONSERVE_RETURN_IF_ERROR(CheckBatch(options, parts));
  return Run(options, parts).Train();
}

}  // namespace kronserve::worker
