// The placement of SPD-KFAC, as published, for comparisons and simulation.
//
// Layer: placement. May include common/ and proto/.
// Kronserve itself places whole layers by measured cost (placement.h).

#ifndef KRONSERVE_PLACEMENT_PAPER_PLACEMENT_H_
#define KRONSERVE_PLACEMENT_PAPER_PLACEMENT_H_

#include <cstdint>
#include <vector>

#include "placement/delegates.h"

namespace kronserve::placement {

// A factor that every worker inverts for itself.
inline constexpr int kEveryWorker = -1;

struct PaperPlacement {
  // [layers]: the worker that inverts and broadcasts A or G (a CT, a
  // communicated tensor), or kEveryWorker (an NCT).
  std::vector<int> rank_a;
  std::vector<int> rank_g;
  // [workers]: sum of the sides of the factors it inverts for all.
  std::vector<int64_t> loads;
};

// Load-balancing placement (LBP): factors by side, largest first (ties: layer
// index, A before G); below `threshold` every worker inverts it, else the
// least loaded worker (ties: lowest) does, and its load grows by the side.
//
//   num_workers  at least 1.
//
// Source: SPD-KFAC, arXiv 2107.06533, with the constant threshold and the
//         linear weight of the authors' code (METHOD.md A2.4).
PaperPlacement PlaceAsSpdKfac(const std::vector<LayerDims>& layers,
                              int num_workers, int64_t threshold);

}  // namespace kronserve::placement

#endif  // KRONSERVE_PLACEMENT_PAPER_PLACEMENT_H_
