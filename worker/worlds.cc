#include "worker/worlds.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/incarnation.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "worker/training/training_state.h"

namespace kronserve::worker {
namespace {

bool IsWorldLost(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

class Worlds {
 public:
  Worlds(const WorldsOptions& options, const WorldsParts& parts)
      : options_(options), parts_(parts), join_(options.session) {
    if (join_.incarnation == 0) join_.incarnation = DrawIncarnation();
    progress_.next_step = options.session.next_step;
  }

  absl::StatusOr<TrainingSummary> Train() {
    for (int64_t restarts = 0;; ++restarts) {
      KRONSERVE_ASSIGN_OR_RETURN(const auto session, Join());
      if (restarts > 0) Announce(*session);
      auto summary = TrainIn(session.get());
      const absl::Status& status = summary.status();
      if (!options_.elastic || !IsWorldLost(status) || Stopping()) {
        return summary;
      }
      if (restarts >= options_.max_restarts) {
        return absl::Status(
            status.code(),
            absl::StrCat("the world was lost again after ", restarts,
                         " restarts: ", status.message()));
      }
      Log(LogLevel::kWarning, "the world is lost: joining again",
          {{"job", join_.job},
           {"next_step", progress_.next_step},
           {"reason", std::string(status.message())}});
      join_.restart_count = session->restart_count() + 1;
    }
  }

 private:
  bool Stopping() const {
    return parts_.trainer.stop != nullptr && parts_.trainer.stop->load();
  }

  absl::StatusOr<std::unique_ptr<Session>> Join() {
    join_.next_step = progress_.next_step;
    if (!options_.elastic) return parts_.join(join_);
    const auto join = [this](SessionOptions attempt) {
      if (!HasState(attempt.restart_count)) {
        attempt.fresh = true;
        attempt.restore_checkpoint.clear();
      }
      return parts_.join(attempt);
    };
    auto session = JoinElastic(join_, join, parts_.timing);
    join_.restore_checkpoint.clear();
    return session;
  }

  // Whether this rank brings a state to the world of `restart_count`: its own,
  // or the one that it was told to resume from. A job that is ahead of what
  // this process was started with is not thrown back to that.
  bool HasState(int64_t restart_count) const {
    const SessionOptions& start = options_.session;
    return progress_.begun ||
           (start.next_step > 0 && restart_count == start.restart_count);
  }

  void Announce(Session& session) const {
    if (parts_.trainer.observer == nullptr) return;
    const Communicator& group = session.job_group();
    parts_.trainer.observer->OnWorld({session.restart_count(), group.size(),
                                      group.rank(), session.start_step()});
  }

  absl::StatusOr<TrainingSummary> TrainIn(Session* session) {
    if (parts_.stop_watcher != nullptr) {
      parts_.stop_watcher->BeginTraining(&session->job_group());
    }
    auto summary = ShareAndTrain(session);
    if (parts_.stop_watcher != nullptr) parts_.stop_watcher->EndTraining();
    if (!summary.ok() || summary->end == TrainingSummary::End::kStopped) {
      return summary;
    }
    if (parts_.before_finish) parts_.before_finish();
    // A rank that was lost meanwhile may not have come to the end.
    const absl::Status all_done = session->job_group().Barrier();
    if (!all_done.ok() && options_.elastic) return all_done;
    if (all_done.ok() && session->job_group().rank() != 0) return summary;
    Finish(session, all_done);
    return summary;
  }

  absl::StatusOr<TrainingSummary> ShareAndTrain(Session* session) {
    TrainerOptions options = options_.trainer;
    options.first_step = session->start_step();
    TrainerParts parts = parts_.trainer;
    parts.session = session;
    parts.group = &session->job_group();
    parts.progress = &progress_;
    if (options_.elastic) {
      options.repeat_evaluation = session->restart_count() > 0;
      const auto own = HasState(session->restart_count())
                           ? std::optional<int64_t>(progress_.next_step)
                           : std::nullopt;
      KRONSERVE_RETURN_IF_ERROR(
          ShareTrainingState(*parts.group, options.first_step, own,
                             {parts.model->parameters(), parts.optimizer}));
    }
    return worker::Train(options, parts);
  }

  // Ends the job once no rank needs it any more. A failure costs the servers
  // memory until the job expires, not the run its result.
  static void Finish(Session* session, const absl::Status& all_done) {
    const absl::Status finished = all_done.ok() ? session->Finish() : all_done;
    if (finished.ok()) return;
    Log(LogLevel::kWarning, "the job was not finished",
        {{"reason", finished.message()}});
  }

  const WorldsOptions& options_;
  const WorldsParts& parts_;
  SessionOptions join_;
  TrainingProgress progress_;
};

}  // namespace

absl::StatusOr<TrainingSummary> TrainInWorlds(const WorldsOptions& options,
                                              const WorldsParts& parts) {
  return Worlds(options, parts).Train();
}

}  // namespace kronserve::worker
