#include "placement/rebalance.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "placement/local_improvement.h"
#include "placement/server_loads.h"

namespace kronserve::placement {
namespace {

// Above this times the mean the largest load is worth a note.
constexpr double kUneven = 1.05;
// Of min_gain: what may be left when moves are made, so that the next call
// finds nothing worth moving.
constexpr double kLeftOver = 0.25;

PlacementProblem WithOwners(const PlacementProblem& problem,
                            const std::vector<int>& owners) {
  PlacementProblem copy = problem;
  for (size_t i = 0; i < owners.size(); ++i) copy.layers[i].owner = owners[i];
  return copy;
}

std::vector<int> OwnersOf(const PlacementProblem& problem) {
  std::vector<int> owners;
  for (const PlacedLayer& layer : problem.layers) owners.push_back(layer.owner);
  return owners;
}

bool IsMispinned(const PlacedLayer& layer, int owner) {
  return owner != kNoServer && layer.pinned_to != kNoServer &&
         layer.pinned_to != owner;
}

// Moves pinned layers to their servers until no more fits: one that leaves may
// make room for another.
std::vector<int> ObeyPins(const PlacementProblem& problem) {
  ServerLoads loads(problem);
  bool moved = true;
  while (moved) {
    moved = false;
    for (int i = 0; i < static_cast<int>(problem.layers.size()); ++i) {
      const PlacedLayer& layer = problem.layers[i];
      if (!IsMispinned(layer, loads.owner(i))) continue;
      if (!loads.Fits(i, layer.pinned_to)) continue;
      loads.Move(i, layer.pinned_to);
      moved = true;
    }
  }
  return loads.owners();
}

// Places the layers of draining servers anew. What fits nowhere stays.
absl::StatusOr<std::vector<int>> Drain(const PlacementProblem& problem) {
  PlacementProblem rest;
  rest.servers = problem.servers;
  rest.fixed_bytes = problem.fixed_bytes;
  rest.partial = true;
  std::vector<size_t> index;
  for (size_t i = 0; i < problem.layers.size(); ++i) {
    PlacedLayer layer = problem.layers[i];
    if (layer.owner == kNoServer) continue;
    if (problem.servers[layer.owner].draining) layer.owner = kNoServer;
    rest.layers.push_back(std::move(layer));
    index.push_back(i);
  }
  KRONSERVE_ASSIGN_OR_RETURN(const Placement placed, PlaceLongestFirst(rest));
  std::vector<int> owners = OwnersOf(problem);
  for (size_t i = 0; i < index.size(); ++i) {
    if (placed.owners[i] != kNoServer) owners[index[i]] = placed.owners[i];
  }
  return owners;
}

int CountMoves(const PlacementProblem& before, const std::vector<int>& after) {
  int moves = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    moves += before.layers[i].owner != after[i];
  }
  return moves;
}

// The way that local improvement takes from a placement.
struct Way {
  std::vector<std::vector<LayerMove>> steps;
  // [steps + 1]: at the start and after each step; never grows.
  std::vector<double> largest_load;
};

Way FindWay(const PlacementProblem& problem) {
  ServerLoads loads(problem);
  std::vector<bool> movable;
  for (const PlacedLayer& layer : problem.layers) {
    movable.push_back(layer.owner != kNoServer);
  }
  LocalImprovement improvement(problem, std::move(movable), &loads);
  Way way;
  way.largest_load = {improvement.LargestLoad()};
  while (true) {
    std::vector<LayerMove> step = improvement.Improve();
    if (step.empty()) return way;
    way.steps.push_back(std::move(step));
    way.largest_load.push_back(improvement.LargestLoad());
  }
}

// Steps of `way` that are worth their moves: the first ones that bring most of
// what can be gained; 0 when that is too little.
size_t StepsWorthTaking(const Way& way, double min_gain) {
  const auto can_fall_by_more_than = [&](double share, size_t step) {
    const double load = way.largest_load[step];
    return load - way.largest_load.back() > share * load;
  };
  if (!can_fall_by_more_than(min_gain, 0)) return 0;
  size_t steps = 0;
  while (can_fall_by_more_than(kLeftOver * min_gain, steps)) ++steps;
  return steps;
}

// Owners after the first steps, as many as keep to max_moves.
std::vector<int> Balance(const PlacementProblem& problem,
                         const RebalanceOptions& options, bool* cut_short) {
  const Way way = FindWay(problem);
  const size_t steps = StepsWorthTaking(way, options.min_gain);
  std::vector<int> owners = OwnersOf(problem);
  for (size_t i = 0; i < steps; ++i) {
    std::vector<int> next = owners;
    for (const LayerMove& move : way.steps[i]) next[move.layer] = move.server;
    *cut_short = CountMoves(problem, next) > options.max_moves;
    if (*cut_short) break;
    owners = std::move(next);
  }
  return owners;
}

// What pins and drains could not do. Empty when they are done.
std::string DescribeUndone(const PlacementProblem& problem) {
  std::vector<std::string> mispinned;
  std::vector<std::string> stuck;
  for (const PlacedLayer& layer : problem.layers) {
    if (layer.owner == kNoServer) continue;
    const PlacementServer& owner = problem.servers[layer.owner];
    if (owner.draining) {
      stuck.push_back(absl::StrCat("'", layer.name, "' on '", owner.name, "'"));
    } else if (IsMispinned(layer, layer.owner)) {
      mispinned.push_back(absl::StrCat("'", layer.name, "' to '",
                                       problem.servers[layer.pinned_to].name,
                                       "'"));
    }
  }
  std::vector<std::string> notes;
  const auto add = [&](const char* what, const std::vector<std::string>& all) {
    if (all.empty()) return;
    notes.push_back(absl::StrCat(all.size(), what, all.front(),
                                 all.size() > 1 ? ", ..." : ""));
  };
  add(" layers stay on draining servers, no other has room for them: ", stuck);
  add(" pinned layers do not fit where they shall go: ", mispinned);
  return absl::StrJoin(notes, "; ");
}

}  // namespace

absl::StatusOr<Rebalancing> Rebalance(const PlacementProblem& problem,
                                      const RebalanceOptions& options) {
  KRONSERVE_RETURN_IF_ERROR(CheckIndices(problem));
  PlacementProblem now = WithOwners(problem, ObeyPins(problem));
  KRONSERVE_ASSIGN_OR_RETURN(const std::vector<int> drained, Drain(now));
  now = WithOwners(problem, drained);
  Rebalancing result;
  result.note = DescribeUndone(now);
  // Balance would compete for the room that they wait for.
  if (result.note.empty() && options.balance) {
    bool cut_short = false;
    now = WithOwners(problem, Balance(now, options, &cut_short));
    if (cut_short) {
      result.note = absl::StrCat("more layers will move: at most ",
                                 options.max_moves, " do at a time");
    }
  }
  result.owners = OwnersOf(now);
  result.load_seconds = ServerLoads(now).loads();
  result.num_moves = CountMoves(problem, result.owners);
  if (result.note.empty()) {
    result.note = DescribeImbalance(problem, result.owners);
  }
  return result;
}

std::string DescribeImbalance(const PlacementProblem& problem,
                              const std::vector<int>& owners) {
  const PlacementProblem placed = WithOwners(problem, owners);
  const ServerLoads loads(placed);
  const int largest = loads.Busiest();
  double sum = 0;
  int counted = 0;
  for (int server = 0; server < loads.num_servers(); ++server) {
    if (problem.servers[server].draining) continue;
    sum += loads.load(server);
    ++counted;
  }
  if (counted == 0 || loads.load(largest) * counted <= kUneven * sum) return "";
  std::string note = absl::StrCat("server '", problem.servers[largest].name,
                                  "' has a load of ", loads.load(largest),
                                  " s, the mean is ", sum / counted, " s: ");
  const auto dearest = std::max_element(
      loads.layers_of(largest).begin(), loads.layers_of(largest).end(),
      [&](int a, int b) {
        return loads.Seconds(a, largest) < loads.Seconds(b, largest);
      });
  if (dearest != loads.layers_of(largest).end() &&
      loads.Seconds(*dearest, largest) * counted > sum) {
    return absl::StrCat(note, "layer '", problem.layers[*dearest].name,
                        "' alone takes ", loads.Seconds(*dearest, largest),
                        " s, which no placement can share");
  }
  return absl::StrCat(note,
                      "what could move would gain too little, or is held "
                      "by pins, memory limits or other jobs");
}

}  // namespace kronserve::placement
