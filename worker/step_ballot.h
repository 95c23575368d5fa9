// A rank's ballot of the step vote, from what it holds.
//
// Layer: worker. May include client/ and lower.

#ifndef KRONSERVE_WORKER_STEP_BALLOT_H_
#define KRONSERVE_WORKER_STEP_BALLOT_H_

#include <cstdint>
#include <vector>

#include "worker/answer_broadcast.h"
#include "worker/step_vote.h"

namespace kronserve::worker {

//   held        [layers], what AnswerBroadcast left.
//   owner_silent  [layers], as client::SilentOwners() says.
StepBallot MakeBallot(const std::vector<HeldAnswer>& held,
                      const std::vector<bool>& owner_silent,
                      uint64_t epoch_held, bool voided);

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_STEP_BALLOT_H_
