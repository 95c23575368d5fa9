// Which layers shall go to another server when servers come, go or drain.
//
// Layer: placement. May include common/ and proto/.
// What is placed stays where it is unless there is a reason: a pin, a draining
// server, or a largest load that falls enough to be worth the moves.

#ifndef KRONSERVE_PLACEMENT_REBALANCE_H_
#define KRONSERVE_PLACEMENT_REBALANCE_H_

#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "placement/placement.h"

namespace kronserve::placement {

struct RebalanceOptions {
  // Nothing moves for balance unless the largest load can fall by more than
  // this share of itself; in [0, 1). A quarter of this may be left to gain when
  // they have moved.
  double min_gain = 0.1;
  // Layers that may move for balance in one call, at least 2 (a swap); pins
  // and drains do not count. When this cuts it short, later calls go on.
  int max_moves = std::numeric_limits<int>::max();
  // False: only pins and drains.
  bool balance = true;
};

struct Rebalancing {
  // [layers]: index of the owner from now on.
  std::vector<int> owners;
  // [servers]: load_seconds and the layers it owns now.
  std::vector<double> load_seconds;
  // Layers whose owner is another one now.
  int num_moves = 0;
  // Why it is not better: what a pin or a drain waits for, or what keeps the
  // load uneven. Empty when all is well.
  std::string note;
};

// First pinned layers go to their servers, then draining servers are emptied
// as Place() would place their layers, as far as there is room; only when both
// are done, layers move for balance. Layers without an owner stay without: they
// are Place()'s. No server is given more than it has room for; one that has
// too little already only loses layers.
//
// Idempotent: applied to its own result nothing moves, unless max_moves or the
// bound of local_improvement.h cut it short.
// Cost: as Place().
//
// Errors:
//   kInvalidArgument  an owner or a pin is not an index of a server.
absl::StatusOr<Rebalancing> Rebalance(const PlacementProblem& problem,
                                      const RebalanceOptions& options);

// Why the largest load is more than 1.05 of the mean of the servers that do
// not drain: one layer that is too dear to share, or limits that forbid moves.
// Empty when it is not.
//
//   owners  [layers], as in a Placement of `problem`.
std::string DescribeImbalance(const PlacementProblem& problem,
                              const std::vector<int>& owners);

}  // namespace kronserve::placement

#endif  // KRONSERVE_PLACEMENT_REBALANCE_H_
