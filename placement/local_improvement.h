// Lowers the largest load of a placement by moving and swapping layers.
//
// Layer: placement. May include common/ and proto/.

#ifndef KRONSERVE_PLACEMENT_LOCAL_IMPROVEMENT_H_
#define KRONSERVE_PLACEMENT_LOCAL_IMPROVEMENT_H_

#include <cstdint>
#include <vector>

#include "placement/placement.h"
#include "placement/server_loads.h"

namespace kronserve::placement {

// A layer that goes to another server.
struct LayerMove {
  int layer = 0;
  int server = 0;
};

// Finds, again and again, what takes most off the server with the largest
// load: one layer that goes to another server or, if no move helps, two that
// change places. Every server touched ends below that load, so this ends.
//
// Thread safety: none.
// Lifetime:      `problem` and `loads` must outlive it.
// Invariants:    what it does next depends on nothing but the owners (and, once
//                it is used up, on kMaxPairs). Draining servers are left alone.
//                A swap is two moves that fit one after the other: so two full
//                servers never wait for each other to make room.
// Cost:          n (S + L) pairs a step, for n layers on that server, S servers
//                and L layers; at most kMaxPairs in all, a few ten
//                milliseconds.
class LocalImprovement {
 public:
  static constexpr int64_t kMaxPairs = 8'000'000;

  //   movable  [layers]: false keeps a layer where it is.
  LocalImprovement(const PlacementProblem& problem, std::vector<bool> movable,
                   ServerLoads* loads);

  // Takes one step and returns its moves, first to last: one, or the two of a
  // swap. Empty when there is none.
  std::vector<LayerMove> Improve();

  // The largest load of the servers that do not drain; 0 without any.
  double LargestLoad() const;

 private:
  struct Step {
    std::vector<LayerMove> moves;
    // Of the two servers, afterwards.
    double larger_load = 0;
  };

  Step BestMove(int from);
  Step BestSwap(int from);
  void TrySwap(int ours, int theirs, Step* best);

  const PlacementProblem& problem_;
  const std::vector<bool> movable_;
  ServerLoads& loads_;
  int64_t pairs_ = 0;
};

}  // namespace kronserve::placement

#endif  // KRONSERVE_PLACEMENT_LOCAL_IMPROVEMENT_H_
