#include "placement/placement.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "placement/local_improvement.h"
#include "placement/memory_model.h"
#include "placement/server_loads.h"

namespace kronserve::placement {
namespace {

// The fitting server with the lowest `score`; kNoServer if none fits.
template <typename Score>
int Best(const ServerLoads& loads, int layer, const Score& score) {
  int best = kNoServer;
  double best_score = std::numeric_limits<double>::infinity();
  for (int server = 0; server < loads.num_servers(); ++server) {
    const double its_score = score(server);
    // In this order, because few pass the first test.
    if (its_score >= best_score || !loads.Fits(layer, server)) continue;
    best = server;
    best_score = its_score;
  }
  return best;
}

// Layers to place, largest `key` first; equal keys in layer order.
template <typename Key>
std::vector<int> Descending(const PlacementProblem& problem, const Key& key) {
  std::vector<int> order;
  for (size_t i = 0; i < problem.layers.size(); ++i) {
    if (problem.layers[i].owner == kNoServer) {
      order.push_back(static_cast<int>(i));
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return key(a) > key(b); });
  return order;
}

// Gives the layers of `order` to the best server each. Returns those that
// fitted nowhere. `score`: of (layer, server), lowest wins.
template <typename Score>
std::vector<int> GiveAll(const std::vector<int>& order, const Score& score,
                         ServerLoads* loads) {
  std::vector<int> left_out;
  for (int layer : order) {
    const int server =
        Best(*loads, layer, [&](int s) { return score(layer, s); });
    if (server == kNoServer) {
      left_out.push_back(layer);
    } else {
      loads->Give(layer, server);
    }
  }
  return left_out;
}

std::vector<int> PlaceByTime(const PlacementProblem& problem,
                             ServerLoads* loads) {
  // Seconds are linear in the curve: the mean curve gives the mean seconds.
  CostCurve mean{0, 0, 0};
  for (const PlacementServer& server : problem.servers) {
    mean.seconds += server.curve.seconds;
    mean.seconds_per_d2 += server.curve.seconds_per_d2;
    mean.seconds_per_d3 += server.curve.seconds_per_d3;
  }
  const std::vector<int> order = Descending(problem, [&](int layer) {
    return RefreshSeconds(mean, problem.layers[layer].work);
  });
  const auto finish = [&](int layer, int server) {
    return loads->load(server) + loads->Seconds(layer, server);
  };
  return GiveAll(order, finish, loads);
}

std::vector<int> PlaceByBytes(const PlacementProblem& problem,
                              ServerLoads* loads) {
  const std::vector<int> order = Descending(
      problem, [&](int layer) { return problem.layers[layer].bytes; });
  const auto room = [&](int, int server) {
    return static_cast<double>(loads->Room(server));
  };
  return GiveAll(order, room, loads);
}

Placement PlacementOf(const ServerLoads& loads) {
  return {loads.owners(), loads.loads()};
}

bool IsServer(int index, const PlacementProblem& problem) {
  return index >= kNoServer && index < static_cast<int>(problem.servers.size());
}

absl::Status CheckAnyAccepts(const PlacementProblem& problem) {
  const bool any_to_place = std::any_of(
      problem.layers.begin(), problem.layers.end(),
      [](const PlacedLayer& layer) { return layer.owner == kNoServer; });
  const bool any_accepts =
      std::any_of(problem.servers.begin(), problem.servers.end(),
                  [](const PlacementServer& server) {
                    return server.accepts_more && !server.draining;
                  });
  if (any_to_place && !any_accepts && !problem.partial) {
    return absl::UnavailableError("no server to place layers on");
  }
  return absl::OkStatus();
}

absl::Status DoesNotFit(const PlacementProblem& problem, int layer) {
  int64_t needed = problem.fixed_bytes;
  int64_t workspace = 0;
  for (const PlacedLayer& item : problem.layers) {
    needed = AddBytes(needed, item.bytes);
    workspace = std::max(workspace, item.workspace_bytes);
  }
  int64_t available = 0;
  std::vector<std::string> free;
  for (const PlacementServer& server : problem.servers) {
    available = AddBytes(available, std::max<int64_t>(server.free_bytes, 0));
    free.push_back(
        absl::StrCat("'", server.name, "' ", server.free_bytes, " bytes"));
  }
  const PlacedLayer& item = problem.layers[layer];
  return absl::ResourceExhaustedError(absl::StrCat(
      "layer '", item.name, "' needs ",
      AddBytes(AddBytes(item.bytes, item.workspace_bytes), problem.fixed_bytes),
      " bytes for one refresh thread and fits no server; all layers need at "
      "least ",
      AddBytes(needed, workspace), " bytes, the servers have ", available,
      " free (", absl::StrJoin(free, ", "),
      "): add servers, raise their memory limit, or register fewer layers"));
}

}  // namespace

absl::Status CheckIndices(const PlacementProblem& problem) {
  for (const PlacedLayer& layer : problem.layers) {
    if (!IsServer(layer.owner, problem)) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer '", layer.name, "': owner ", layer.owner,
                       " is not one of ", problem.servers.size(), " servers"));
    }
    if (!IsServer(layer.pinned_to, problem)) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer '", layer.name, "': pinned to ", layer.pinned_to,
                       ", not one of ", problem.servers.size(), " servers"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Placement> PlaceLongestFirst(const PlacementProblem& problem) {
  KRONSERVE_RETURN_IF_ERROR(CheckIndices(problem));
  KRONSERVE_RETURN_IF_ERROR(CheckAnyAccepts(problem));
  ServerLoads by_time(problem);
  const std::vector<int> left_by_time = PlaceByTime(problem, &by_time);
  if (left_by_time.empty()) return PlacementOf(by_time);
  ServerLoads by_bytes(problem);
  const std::vector<int> left_by_bytes = PlaceByBytes(problem, &by_bytes);
  if (left_by_bytes.empty()) return PlacementOf(by_bytes);
  if (!problem.partial) return DoesNotFit(problem, left_by_bytes.front());
  return PlacementOf(left_by_time.size() <= left_by_bytes.size() ? by_time
                                                                 : by_bytes);
}

absl::StatusOr<Placement> Place(const PlacementProblem& problem) {
  KRONSERVE_ASSIGN_OR_RETURN(const Placement greedy,
                             PlaceLongestFirst(problem));
  PlacementProblem placed = problem;
  std::vector<bool> movable;
  for (size_t i = 0; i < problem.layers.size(); ++i) {
    movable.push_back(problem.layers[i].owner == kNoServer &&
                      greedy.owners[i] != kNoServer);
    placed.layers[i].owner = greedy.owners[i];
  }
  ServerLoads loads(placed);
  LocalImprovement improvement(placed, std::move(movable), &loads);
  while (!improvement.Improve().empty()) {
  }
  return PlacementOf(loads);
}

namespace {

// sum_i min_s y_s seconds_si for weights as 1 / (seconds of all works on s).
double SpeedWeightedShare(const std::vector<RefreshWork>& works,
                          const std::vector<CostCurve>& servers) {
  std::vector<double> weights;
  double sum = 0;
  for (const CostCurve& server : servers) {
    double seconds = 0;
    for (const RefreshWork& work : works) {
      seconds += RefreshSeconds(server, work);
    }
    if (seconds <= 0) return 0;
    weights.push_back(1 / seconds);
    sum += weights.back();
  }
  double share = 0;
  for (const RefreshWork& work : works) {
    double least = std::numeric_limits<double>::infinity();
    for (size_t s = 0; s < servers.size(); ++s) {
      least = std::min(least, weights[s] * RefreshSeconds(servers[s], work));
    }
    share += least / sum;
  }
  // A bound errs downwards: the divisions above are rounded.
  return share * (1 - 1e-12);
}

}  // namespace

double LowerBoundSeconds(const std::vector<RefreshWork>& works,
                         const std::vector<CostCurve>& servers) {
  if (servers.empty()) return 0;
  double total = 0;
  double dearest = 0;
  for (const RefreshWork& work : works) {
    double best = RefreshSeconds(servers.front(), work);
    for (const CostCurve& server : servers) {
      best = std::min(best, RefreshSeconds(server, work));
    }
    total += best;
    dearest = std::max(dearest, best);
  }
  return std::max({total / static_cast<double>(servers.size()), dearest,
                   SpeedWeightedShare(works, servers)});
}

}  // namespace kronserve::placement
