// Which rank builds, pushes and fetches which layer.
//
// Layer: placement. May include common/.
// A pure function of (world, layers, factor source): servers evaluate it to
// know whom a round waits for, ranks to know what to send (PROTOCOL.md 3).

#ifndef KRONSERVE_PLACEMENT_DELEGATES_H_
#define KRONSERVE_PLACEMENT_DELEGATES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace kronserve::placement {

enum class FactorSource { kAll, kOneRank };

// The two sides of a layer's factors.
struct LayerDims {
  int64_t d_in = 1;
  int64_t d_out = 1;
};

struct Delegates {
  // [layers]: the rank that uploads the layer's gradient and fetches V; it
  // broadcasts V to the job.
  std::vector<int> gradient_rank;
  // [layers][...]: ranks whose contributions a factor round of the layer waits
  // for, ascending. kAll: one per node. kOneRank: gradient_rank alone.
  std::vector<std::vector<int>> contributors;
  // [layers][ranks]: the contributor that collects this rank's statistics; -1
  // where they are not used. A contributor collects its own.
  std::vector<std::vector<int>> collector;
};

// Spreads the layers over the ranks: heaviest first (by d_in^2 + d_out^2, then
// layer index), to the node, and inside it the rank, with the least so far.
//
//   node_of_rank  [ranks], at least one; equal names share a node.
Delegates ChooseDelegates(const std::vector<std::string>& node_of_rank,
                          const std::vector<LayerDims>& layers,
                          FactorSource source);

}  // namespace kronserve::placement

#endif  // KRONSERVE_PLACEMENT_DELEGATES_H_
