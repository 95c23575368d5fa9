#include "placement/local_improvement.h"

#include <algorithm>
#include <utility>

namespace kronserve::placement {
namespace {

// Less is rounding, not a gain.
constexpr double kSmallestGain = 1e-9;

}  // namespace

LocalImprovement::LocalImprovement(const PlacementProblem& problem,
                                   std::vector<bool> movable,
                                   ServerLoads* loads)
    : problem_(problem), movable_(std::move(movable)), loads_(*loads) {
  loads_.Recount();
}

double LocalImprovement::LargestLoad() const {
  const int server = loads_.Busiest();
  return server == kNoServer ? 0 : loads_.load(server);
}

std::vector<LayerMove> LocalImprovement::Improve() {
  const int from = loads_.Busiest();
  if (from == kNoServer || pairs_ >= kMaxPairs) return {};
  Step step = BestMove(from);
  if (step.moves.empty()) step = BestSwap(from);
  for (const LayerMove& move : step.moves) {
    loads_.Move(move.layer, move.server);
  }
  return std::move(step.moves);
}

LocalImprovement::Step LocalImprovement::BestMove(int from) {
  Step best;
  best.larger_load = loads_.load(from) * (1 - kSmallestGain);
  for (int layer : loads_.layers_of(from)) {
    if (!movable_[layer]) continue;
    const double rest = loads_.load(from) - loads_.Seconds(layer, from);
    pairs_ += loads_.num_servers();
    for (int server = 0; server < loads_.num_servers(); ++server) {
      const double larger =
          std::max(rest, loads_.load(server) + loads_.Seconds(layer, server));
      if (server == from || larger >= best.larger_load) continue;
      if (!loads_.Fits(layer, server)) continue;
      best = {{{layer, server}}, larger};
    }
  }
  return best;
}

LocalImprovement::Step LocalImprovement::BestSwap(int from) {
  Step best;
  best.larger_load = loads_.load(from) * (1 - kSmallestGain);
  const std::vector<int> ours = loads_.layers_of(from);
  for (int layer : ours) {
    if (!movable_[layer]) continue;
    for (int other = 0; other < static_cast<int>(movable_.size()); ++other) {
      const int owner = loads_.owner(other);
      if (!movable_[other] || owner == kNoServer || owner == from) continue;
      if (problem_.servers[owner].draining) continue;
      ++pairs_;
      TrySwap(layer, other, &best);
    }
    if (pairs_ >= kMaxPairs) break;
  }
  return best;
}

void LocalImprovement::TrySwap(int ours, int theirs, Step* best) {
  const int here = loads_.owner(ours);
  const int there = loads_.owner(theirs);
  const double larger =
      std::max(loads_.load(here) - loads_.Seconds(ours, here) +
                   loads_.Seconds(theirs, here),
               loads_.load(there) - loads_.Seconds(theirs, there) +
                   loads_.Seconds(ours, there));
  if (larger >= best->larger_load) return;
  if (loads_.Fits(ours, there) && loads_.FitsInstead(ours, theirs, here)) {
    *best = {{{ours, there}, {theirs, here}}, larger};
  } else if (loads_.Fits(theirs, here) &&
             loads_.FitsInstead(theirs, ours, there)) {
    *best = {{{theirs, here}, {ours, there}}, larger};
  }
}

}  // namespace kronserve::placement
