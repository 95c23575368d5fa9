// What a run shows: events as JSON lines, and progress for people.
//
// Layer: worker. May include client/ and lower.
//
// Every line of the events file is one object with "event" and:
//   step      step (from 0), epoch, loss, seconds (training so far, without
//             evaluations), waited_seconds and exchange_seconds (of this
//             step, for the service and for the gradient average), layers,
//             layers_preconditioned, fallbacks, nu, assignment_epoch
//   eval      step (steps taken), epoch, loss, accuracy, seconds
//   fallback  step, layers: [{name, reason, message}]; when the set changes
//   done      end (completed, target_reached, stopped or diverged), steps,
//             seconds, waited_seconds, exchange_seconds, last_loss,
//             final_accuracy, steps_to_target and seconds_to_target (null when
//             not reached), fallback_steps, layers, layers_preconditioned (at
//             the last step), fallen_back_layers {name: steps}

#ifndef KRONSERVE_WORKER_TRAINING_REPORTER_H_
#define KRONSERVE_WORKER_TRAINING_REPORTER_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/training/trainer.h"

namespace kronserve::worker {

enum class ProgressStyle {
  kNone,
  kLines,  // One line per evaluation.
  kBar,    // One line that is drawn again and again.
};

struct ReporterOptions {
  std::string events;  // File; empty: none.
  ProgressStyle progress = ProgressStyle::kLines;
  int64_t total_steps = 0;
  int64_t steps_per_epoch = 1;
  std::FILE* progress_out = stderr;
};

// Writes events and progress; rank 0 has one.
//
// Thread safety: none.
// Invariants:    every event is on disk, as far as this process can tell, when
//                its call returns: a reader may follow the file.
class Reporter final : public TrainingObserver {
 public:
  // Errors:
  //   kFailedPrecondition  the events file cannot be written; names it.
  static absl::StatusOr<std::unique_ptr<Reporter>> Create(
      const ReporterOptions& options);

  void OnStep(const StepEvent& event) override;
  void OnEval(const EvalEvent& event) override;
  void OnFallback(const FallbackEvent& event) override;
  void OnWorld(const WorldEvent& event) override;

  // Writes "done" and ends the progress line.
  //
  // Errors:
  //   kDataLoss  some event could not be written, then or before.
  absl::Status Done(const TrainingSummary& summary);

 private:
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

  Reporter(const ReporterOptions& options, File events);

  void Write(const std::string& line);
  void DrawBar(const StepEvent& event);
  // Prints a whole line, below the bar if there is one.
  void PrintLine(const std::string& line);

  const ReporterOptions options_;
  File events_;  // Null without an events file.
  bool write_failed_ = false;
  bool bar_open_ = false;
  absl::Time last_drawn_ = absl::InfinitePast();
  std::string accuracy_;  // Of the last evaluation, for the bar.
  double last_loss_ = 0;
};

// The summary in one line, for people.
std::string SummaryLine(const TrainingSummary& summary);

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_TRAINING_REPORTER_H_
