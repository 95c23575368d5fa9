// Everything an owner keeps of one layer: rounds, averages, refreshes, and
// what to answer a gradient of a step.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.
// Bookkeeping only: sums and factorisations are tasks (tasks.h), begun by
// StartMerge() and StartRefresh(), their results installed by FinishMerge() and
// FinishRefresh().
// Source: PROTOCOL.md 3 and 4; METHOD.md D2, D3, D11.

#ifndef KRONSERVE_SERVER_LAYER_STATE_H_
#define KRONSERVE_SERVER_LAYER_STATE_H_

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "curvature/factor_average.h"
#include "curvature/preconditioner.h"
#include "curvature/refresh_policy.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "server/layer_rounds.h"
#include "server/layer_snapshot.h"
#include "server/step_ledger.h"
#include "server/tasks.h"

namespace kronserve::server {

// What a layer is and how its job treats it; fixed for the life of the job.
struct LayerRules {
  std::string name;
  int64_t d_in = 1;
  int64_t d_out = 1;
  double scale_a = 1;
  double scale_g = 1;
  curvature::Method method = curvature::Method::kInverse;
  curvature::DampingForm form = curvature::DampingForm::kFactored;
  curvature::FactorInit init = curvature::FactorInit::kWarm;
  curvature::RefreshIntervals intervals;
  int64_t phase = 0;          // Of the refresh schedule.
  int64_t max_staleness = 0;  // Steps.
  RoundRules rounds;
};

// What a gradient of one step gets.
struct Answer {
  enum class Kind { kWait, kFallback, kPrecondition };
  Kind kind = Kind::kWait;
  // kFallback.
  v1::FallbackReason reason = v1::FALLBACK_REASON_UNSPECIFIED;
  std::string message;
  // kPrecondition.
  std::shared_ptr<const Published> basis;
  double damping = 0;
  v1::RefreshRung rung = v1::REFRESH_RUNG_UNSPECIFIED;
  int64_t age = 0;
};

// Thread safety: none.
// Invariants:    one merge and one refresh run at a time; merges install in
//                the order in which their rounds closed; a refresh is published
//                only if it is newer than what is published.
class LayerState {
 public:
  LayerState(const LayerRules& rules, std::vector<int> contributors,
             int64_t closed_through);

  const LayerRules& rules() const { return rules_; }
  LayerRounds& rounds() { return rounds_; }
  const LayerRounds& rounds() const { return rounds_; }
  int64_t updates() const { return updates_; }
  const Averages& averages() const { return averages_; }
  const std::shared_ptr<const Published>& published() const {
    return published_;
  }

  // Takes a round that closed with data in it.
  void QueueMerge(ClosedRound closed);
  // Queued or running.
  int num_merges() const { return static_cast<int>(merges_.size()); }
  // Gives up the oldest queued merge, none of which is running: what was to be
  // merged is late.
  ClosedRound DropOldestMerge();

  // The next merge to run; absent when none waits, one is running, or the next
  // round is of a step after `through`.
  std::optional<MergeInput> StartMerge(int64_t through);
  // Installs the running merge's result and returns its round. On an error
  // nothing else changes.
  ClosedRound FinishMerge(absl::StatusOr<Averages> result);

  // The refresh to run now that `step` has come; absent when none is due, its
  // round is still open, or one is running. A refresh that is due without
  // anything merged since the last one counts as done.
  std::optional<RefreshInput> StartRefresh(int64_t step);
  void FinishRefresh(absl::StatusOr<curvature::Factorization<float>> result);

  // What a gradient of `step` gets now. The first answer other than kWait is
  // kept: whoever asks again for this step gets the same.
  Answer Decide(int64_t step, const StepLedger& ledger);
  // Ends the wait of `step`: FALLBACK NOT_READY, kept as in Decide().
  Answer GiveUp(int64_t step);

  // A new world starts at `start_step`: averages and what is published stay,
  // open rounds are dropped and returned.
  std::vector<ClosedRound> StartWorld(std::vector<int> contributors,
                                      int64_t start_step);
  // No merge or refresh is queued or running: another server that has
  // Contents() answers every step up to closed_through() with the same bytes.
  bool IsQuiet() const { return IsQuiet(std::numeric_limits<int64_t>::max()); }
  // As IsQuiet(), whatever merges of steps after `through` are queued.
  bool IsQuiet(int64_t through) const {
    return !refreshing_.has_value() &&
           (merges_.empty() || merges_.front().order_step > through);
  }
  // Factors of a step after `step` were merged or are being merged.
  bool IsPast(int64_t step) const {
    return factor_step_ > step ||
           (merging_ && merges_.front().order_step > step);
  }
  // A gradient of `step` or of a later one was answered.
  bool HasAnswered(int64_t step) const {
    return given_.has_value() && given_->step >= step;
  }
  // What was merged and published, with the newest step that is wholly in it,
  // but none after `through`. May be taken at any time: rounds and refreshes
  // that are queued or running are not in it.
  LayerContents Contents(int64_t through) const;
  // Takes the state that another server or a checkpoint held; only before the
  // first merge. Rounds that are in it already are dropped and returned.
  //
  //   same_world  the state is of this world. One of another world that is
  //               ahead of this one is kept as StartWorld() keeps it.
  std::vector<ClosedRound> Install(const LayerContents& contents,
                                   bool same_world);

  // Contributions that are staged and the bytes of their tensors.
  struct Staged {
    int64_t contributions = 0;
    int64_t empty = 0;  // Without data: nothing of them is lost.
    int64_t bytes = 0;
  };
  // The layer is freed: gives up open rounds and merges.
  Staged ReleaseStaged();
  // Step of the newest merged round; -1 before the first.
  int64_t factor_step() const { return factor_step_; }

 private:
  struct PendingMerge {
    ClosedRound closed;
    int64_t order_step = 0;  // Its place among the steps of this world.
  };
  struct RunningRefresh {
    int64_t due = 0;
    int64_t version = 0;
    int64_t factor_step = 0;
  };
  struct Given {
    int64_t step = 0;
    Answer answer;
  };

  void ForgetLaterSteps(int64_t start_step);
  std::vector<ClosedRound> InstallRounds(const v1::LayerSnapshot& meta);
  // All rounds up to this step are merged or gone.
  int64_t SettledThrough() const;
  // The newest scheduled step <= `step` whose round has settled; -1 if none.
  int64_t DueAndSettled(int64_t step) const;
  Answer Fresh(int64_t step) const;
  Answer FromPublished(int64_t step) const;
  Answer Keep(int64_t step, Answer answer);

  LayerRules rules_;
  LayerRounds rounds_;

  Averages averages_;
  int64_t updates_ = 0;       // k: merged rounds.
  int64_t factor_step_ = -1;  // Of the newest merged round.
  int64_t first_step_ = -1;   // Of the first merged round.
  double damping_ = 0;        // Of the newest merged round.
  std::deque<PendingMerge> merges_;
  bool merging_ = false;  // The front of merges_ is running.

  std::shared_ptr<const Published> published_;
  int64_t published_for_ = -1;  // Newest scheduled step it satisfies.
  int64_t failed_for_ = -1;     // Scheduled step of the last failed refresh.
  std::string failure_;
  std::optional<RunningRefresh> refreshing_;

  std::optional<Given> given_;  // The newest answered step.
};

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_LAYER_STATE_H_
