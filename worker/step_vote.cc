#include "worker/step_vote.h"

#include "common/status_macros.h"

namespace kronserve::worker {
namespace {

constexpr size_t kStepWords = 2;  // Commit (0: void), epoch held.
// Flag, version, ~version, checksum, ~checksum, owner heard.
constexpr size_t kLayerWords = 6;

// Whether all ranks had the same value: ~x falls as x grows, so the minimum of
// ~x is that of the largest x.
bool Same(int64_t lowest, int64_t lowest_complement) {
  return lowest == ~lowest_complement;
}

}  // namespace

std::vector<int64_t> EncodeBallot(const StepBallot& ballot) {
  std::vector<int64_t> words;
  words.reserve(kStepWords + kLayerWords * ballot.layers.size());
  words.push_back(ballot.voided ? 0 : 1);
  words.push_back(static_cast<int64_t>(ballot.epoch_held));
  for (const LayerBallot& layer : ballot.layers) {
    const auto checksum = static_cast<int64_t>(layer.checksum);
    words.push_back(layer.preconditioned ? 1 : 0);
    words.push_back(layer.version);
    words.push_back(~layer.version);
    words.push_back(checksum);
    words.push_back(~checksum);
    words.push_back(layer.owner_silent ? 0 : 1);
  }
  return words;
}

StepDecision DecideStep(const std::vector<int64_t>& minimum) {
  StepDecision decision;
  decision.voided = minimum[0] == 0;
  decision.epoch = static_cast<uint64_t>(minimum[1]);
  for (size_t at = kStepWords; at < minimum.size(); at += kLayerWords) {
    decision.preconditioned.push_back(!decision.voided && minimum[at] == 1 &&
                                      Same(minimum[at + 1], minimum[at + 2]) &&
                                      Same(minimum[at + 3], minimum[at + 4]));
    decision.owner_silent.push_back(minimum[at + 5] == 0);
  }
  return decision;
}

absl::StatusOr<StepDecision> VoteStep(Communicator& group,
                                      const StepBallot& ballot) {
  std::vector<int64_t> words = EncodeBallot(ballot);
  if (group.size() > 1) {
    KRONSERVE_RETURN_IF_ERROR(group.AllReduceMin(words.data(), words.size()));
  }
  return DecideStep(words);
}

}  // namespace kronserve::worker
