#include "worker/step_ballot.h"

namespace kronserve::worker {

StepBallot MakeBallot(const std::vector<HeldAnswer>& held,
                      const std::vector<bool>& owner_silent,
                      uint64_t epoch_held, bool voided) {
  StepBallot ballot;
  ballot.epoch_held = epoch_held;
  ballot.voided = voided;
  for (size_t i = 0; i < held.size(); ++i) {
    ballot.layers.push_back({held[i].preconditioned, held[i].version,
                             held[i].checksum, owner_silent[i]});
  }
  return ballot;
}

}  // namespace kronserve::worker
