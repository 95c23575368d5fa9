// The open rounds of one layer, and the order in which they close.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.
// Source: PROTOCOL.md 3.

#ifndef KRONSERVE_SERVER_LAYER_ROUNDS_H_
#define KRONSERVE_SERVER_LAYER_ROUNDS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "google/protobuf/repeated_field.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "server/round.h"
#include "server/step_ledger.h"

namespace kronserve::server {

struct RoundRules {
  // True: at `deadline` after the first arrival what is in and committed is
  // merged, if it is `min_share` of the contributors. False: never a part.
  bool partial = false;
  double min_share = 0.5;
  absl::Duration deadline = absl::Seconds(1);
  int max_open = 2;
};

// Thread safety: none.
// Invariants:    rounds close in step order; closed_through is the newest
//                closed step and grows within a world.
//
//   no round --first arrival--> open --complete, all committed--> merge
//                                 |---a rank voided the step----> void
//                                 |---deadline, enough in-------> merge (part)
//                                 `---deadline, too little; passed by a rank
//                                     (unless partial); pushed out by a newer
//                                     round; new world----------> drop
class LayerRounds {
 public:
  LayerRounds(const RoundRules& rules, std::vector<int> contributors,
              int64_t closed_through);

  const std::vector<int>& contributors() const { return contributors_; }
  bool Expects(int rank) const;
  int64_t closed_through() const { return closed_through_; }
  int num_open() const { return static_cast<int>(open_.size()); }
  // The step of the oldest open round, absent without one.
  std::optional<int64_t> oldest_open() const;
  // When Close() has something to do by time alone; InfiniteFuture() if never.
  absl::Time NextDeadline() const;

  // What this identity sent before, in an open or recently closed round; null
  // if nothing.
  const Contribution* Find(int64_t step, int rank, v1::FactorKind kind) const;

  // As Round::CheckSettings(); a round that is not open agrees with anything.
  absl::Status CheckSettings(int64_t step, double damping,
                             double factor_decay) const;

  // The round of a step that is not closed; opens it when it is the first.
  Round& Open(int64_t step, absl::Time now);

  // Remembers an identity of a closed step, so that its repeats are known.
  void Remember(int64_t step, int rank, v1::FactorKind kind,
                Contribution contribution);

  // A rank has ended `step`. Ranks begin a step only after the vote on the one
  // before, so no push of an earlier step is to be expected any more: without
  // an open round the steps before are closed. Or a layer that was placed here
  // between two rounds would wait for a round that went to its lost owner;
  // while one is open they are closed with it, at the latest at its deadline.
  // An open round that waits for all closes too: with a rank that took this
  // server for lost it would never be complete, and each step up to the next
  // round would wait for it in vain.
  void Pass(int64_t step);

  // Nothing of the steps before `step` is to be expected any more: their rounds
  // are closed by the next Close() as their deadline would close them.
  void CloseBefore(int64_t step);

  // Closes, in step order, every round that may close now.
  std::vector<ClosedRound> Close(const StepLedger& ledger, absl::Time now);

  // Identities of the closed rounds up to step `through`.
  std::vector<v1::ClosedContribution> Closed(int64_t through) const;

  // The state of another server is installed here: what it closed is closed.
  // Returns open rounds that it had closed already.
  std::vector<ClosedRound> Install(
      int64_t closed_through,
      const google::protobuf::RepeatedPtrField<v1::ClosedContribution>& closed);

  // A new world: drops all open rounds and forgets the closed ones.
  std::vector<ClosedRound> Restart(std::vector<int> contributors,
                                   int64_t closed_through);

 private:
  std::optional<CloseAs> Decide(const Round& round, const StepLedger& ledger,
                                absl::Time now) const;
  void ClosePassed();
  void TrimRecent();

  RoundRules rules_;
  std::vector<int> contributors_;  // Ascending.
  int64_t closed_through_;
  int64_t close_before_ = 0;
  int64_t passed_ = 0;  // Newest step that a rank has ended.
  std::map<int64_t, Round> open_;
  std::map<int64_t, Round> recent_;  // Closed; identities only.
};

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_LAYER_ROUNDS_H_
