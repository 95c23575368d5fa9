// The step vote: what all ranks of a job agree on before any gradient is
// written.
//
// Layer: worker. May include common/ and worker/collective/.
// One all-reduce (minimum) over the job group. A value travels with its
// complement, so that the minimum of both shows whether all ranks had the same
// (PROTOCOL.md 1).

#ifndef KRONSERVE_WORKER_STEP_VOTE_H_
#define KRONSERVE_WORKER_STEP_VOTE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/collective/communicator.h"

namespace kronserve::worker {

// What one rank holds of one layer.
struct LayerBallot {
  bool preconditioned = false;
  int64_t version = 0;
  uint64_t checksum = 0;  // Of V as this rank holds it.
  // The layer's owner is a suspect that this rank has not heard since.
  bool owner_silent = false;
};

struct StepBallot {
  std::vector<LayerBallot> layers;
  uint64_t epoch_held = 0;
  bool voided = false;
};

// Equal on all ranks.
struct StepDecision {
  std::vector<bool> preconditioned;  // Per layer; false: all fall back.
  uint64_t epoch = 0;                // Lowest held: used at the next step.
  bool voided = false;               // Any rank voided the step.
  // Per layer: some rank cannot hear its owner. The others take its word, so
  // that the same server does not cost each of them a budget in turn.
  std::vector<bool> owner_silent;
};

// The ballot as numbers whose minimum over the ranks DecideStep() reads:
// 2 + 6 per layer.
std::vector<int64_t> EncodeBallot(const StepBallot& ballot);

// A layer is preconditioned if every rank says so, with one version and one
// checksum; none is in a void step.
StepDecision DecideStep(const std::vector<int64_t>& minimum);

// Votes over `group`; a group of one decides alone.
//
// Errors: the group's.
absl::StatusOr<StepDecision> VoteStep(Communicator& group,
                                      const StepBallot& ballot);

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_STEP_VOTE_H_
