// Which server owns which layer.
//
// Layer: placement. May include common/ and proto/.
// Longest processing time first, by predicted seconds, under memory limits:
// within 4/3 of the best possible on equal servers (Graham, 1969); then layers
// are moved and swapped while that lowers the largest load. What has an owner
// keeps it, so a lost server moves only its own layers; rebalance.h moves them.

#ifndef KRONSERVE_PLACEMENT_PLACEMENT_H_
#define KRONSERVE_PLACEMENT_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "placement/cost_curve.h"

namespace kronserve::placement {

// Index of an owner: no server.
inline constexpr int kNoServer = -1;

struct PlacedLayer {
  std::string name;
  RefreshWork work;
  // Held as long as the layer is there.
  int64_t bytes = 0;
  // Scratch of a refresh; a server needs that of its largest layer for each of
  // its refresh threads.
  int64_t workspace_bytes = 0;
  // Index of the server that has it already, or kNoServer: to be placed.
  int owner = kNoServer;
  // The only server that it may be given to; kNoServer: any.
  int pinned_to = kNoServer;
};

struct PlacementServer {
  std::string name;
  CostCurve curve;
  // Without the layers of this problem, also those it has already.
  int64_t free_bytes = 0;
  int64_t refresh_threads = 1;
  double load_seconds = 0;
  // False: it keeps what it has and gets nothing new.
  bool accepts_more = true;
  // It shall become empty: gets nothing new, and its load does not count.
  bool draining = false;
};

struct PlacementProblem {
  std::vector<PlacedLayer> layers;
  std::vector<PlacementServer> servers;
  // Taken on every server that owns at least one of the layers.
  int64_t fixed_bytes = 0;
  // A layer that fits nowhere is left out instead of refusing them all.
  bool partial = false;
};

struct Placement {
  // [layers]: index of the owner; kNoServer only when `partial`.
  std::vector<int> owners;
  // [servers]: load_seconds and the layers it owns now.
  std::vector<double> load_seconds;
};

// Errors:
//   kInvalidArgument  an owner or a pin is not an index of a server.
absl::Status CheckIndices(const PlacementProblem& problem);

// Costliest layer first (by its mean over the servers; ties: lowest index), to
// the server that would finish first (ties: lowest index) among those with
// room. If that leaves a layer out, again by bytes, largest first, to the
// server with the least room that is enough: memory goes before balance.
//
// Cost: O(L S) for L layers on S servers, a few nanoseconds each.
//
// Errors:
//   kInvalidArgument    an owner or a pin is not an index of a server.
//   kUnavailable        there is a layer to place and no server that accepts.
//   kResourceExhausted  a layer fits nowhere; the message names it, the bytes
//                       it needs, and what each server has free.
absl::StatusOr<Placement> PlaceLongestFirst(const PlacementProblem& problem);

// PlaceLongestFirst(), then local improvement of the layers it placed.
//
// Cost: as that, and a few ten milliseconds more at most, however large
//       (local_improvement.h).
//
// Errors: as PlaceLongestFirst().
absl::StatusOr<Placement> Place(const PlacementProblem& problem);

// No placement of `works` can be better than this largest load: the dearest
// item on its best server, or the even share of all (with each server weighted
// alike, or by its speed, whichever says more). On equal servers:
// max(total / servers, largest). 0 without servers.
//
// Source: for weights y >= 0 with sum 1, max_s load_s >= sum_s y_s load_s >=
//         sum_i min_s y_s seconds_si (weak duality of the assignment problem).
double LowerBoundSeconds(const std::vector<RefreshWork>& works,
                         const std::vector<CostCurve>& servers);

}  // namespace kronserve::placement

#endif  // KRONSERVE_PLACEMENT_PLACEMENT_H_
