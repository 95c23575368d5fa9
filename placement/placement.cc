#include "placement/placement.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "placement/memory_model.h"

namespace kronserve::placement {
namespace {

// What a server has taken on so far.
struct Taken {
  int64_t bytes = 0;
  int64_t workspace_bytes = 0;
  bool any = false;
};

// One attempt: starts from the layers that have an owner.
class Attempt {
 public:
  explicit Attempt(const PlacementProblem& problem)
      : problem_(problem), taken_(problem.servers.size()) {
    placement_.owners.assign(problem.layers.size(), kNoServer);
    for (const PlacementServer& server : problem.servers) {
      placement_.load_seconds.push_back(server.load_seconds);
    }
    for (size_t i = 0; i < problem.layers.size(); ++i) {
      if (problem.layers[i].owner != kNoServer) {
        Give(i, problem.layers[i].owner);
      }
    }
  }

  void Give(size_t layer, int server) {
    const PlacedLayer& item = problem_.layers[layer];
    Taken& taken = taken_[server];
    taken.bytes = AddBytes(taken.bytes, item.bytes);
    taken.workspace_bytes =
        std::max(taken.workspace_bytes, item.workspace_bytes);
    taken.any = true;
    placement_.owners[layer] = server;
    placement_.load_seconds[server] +=
        RefreshSeconds(problem_.servers[server].curve, item.work);
  }

  // Bytes left on `server`; below 0 when kept layers already exceed it.
  int64_t Room(int server) const {
    const Taken& taken = taken_[server];
    const int64_t used = AddBytes(AddBytes(taken.bytes, taken.workspace_bytes),
                                  taken.any ? problem_.fixed_bytes : 0);
    return problem_.servers[server].free_bytes - used;
  }

  // Bytes that `layer` adds to `server`.
  int64_t Extra(size_t layer, int server) const {
    const PlacedLayer& item = problem_.layers[layer];
    const Taken& taken = taken_[server];
    const int64_t scratch =
        std::max<int64_t>(item.workspace_bytes - taken.workspace_bytes, 0);
    return AddBytes(AddBytes(item.bytes, scratch),
                    taken.any ? 0 : problem_.fixed_bytes);
  }

  bool Fits(size_t layer, int server) const {
    return problem_.servers[server].accepts_more &&
           Extra(layer, server) <= Room(server);
  }

  double FinishWith(size_t layer, int server) const {
    return placement_.load_seconds[server] +
           RefreshSeconds(problem_.servers[server].curve,
                          problem_.layers[layer].work);
  }

  // The fitting server with the lowest `score`; kNoServer if none fits.
  template <typename Score>
  int Best(size_t layer, const Score& score) const {
    int best = kNoServer;
    for (int server = 0; server < static_cast<int>(taken_.size()); ++server) {
      if (!Fits(layer, server)) continue;
      if (best == kNoServer || score(server) < score(best)) best = server;
    }
    return best;
  }

  Placement TakePlacement() { return std::move(placement_); }

 private:
  const PlacementProblem& problem_;
  Placement placement_;
  std::vector<Taken> taken_;
};

// Layers to place, largest `key` first; equal keys in layer order.
template <typename Key>
std::vector<size_t> Descending(const PlacementProblem& problem,
                               const Key& key) {
  std::vector<size_t> order;
  for (size_t i = 0; i < problem.layers.size(); ++i) {
    if (problem.layers[i].owner == kNoServer) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return key(a) > key(b); });
  return order;
}

double MeanSeconds(const PlacementProblem& problem, size_t layer) {
  double sum = 0;
  for (const PlacementServer& server : problem.servers) {
    sum += RefreshSeconds(server.curve, problem.layers[layer].work);
  }
  return sum / static_cast<double>(problem.servers.size());
}

// Returns the layers that fitted nowhere.
std::vector<size_t> PlaceByTime(const PlacementProblem& problem,
                                Attempt* attempt) {
  std::vector<size_t> left_out;
  const auto cost = [&](size_t layer) { return MeanSeconds(problem, layer); };
  for (size_t layer : Descending(problem, cost)) {
    const int server = attempt->Best(
        layer, [&](int s) { return attempt->FinishWith(layer, s); });
    if (server == kNoServer) {
      left_out.push_back(layer);
    } else {
      attempt->Give(layer, server);
    }
  }
  return left_out;
}

std::vector<size_t> PlaceByBytes(const PlacementProblem& problem,
                                 Attempt* attempt) {
  std::vector<size_t> left_out;
  const auto bytes = [&](size_t layer) { return problem.layers[layer].bytes; };
  for (size_t layer : Descending(problem, bytes)) {
    const int server =
        attempt->Best(layer, [&](int s) { return attempt->Room(s); });
    if (server == kNoServer) {
      left_out.push_back(layer);
    } else {
      attempt->Give(layer, server);
    }
  }
  return left_out;
}

absl::Status Check(const PlacementProblem& problem) {
  const int num_servers = static_cast<int>(problem.servers.size());
  bool any_to_place = false;
  for (const PlacedLayer& layer : problem.layers) {
    any_to_place |= layer.owner == kNoServer;
    if (layer.owner < kNoServer || layer.owner >= num_servers) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer '", layer.name, "': owner ", layer.owner,
                       " is not one of ", num_servers, " servers"));
    }
  }
  const bool any_accepts = std::any_of(
      problem.servers.begin(), problem.servers.end(),
      [](const PlacementServer& server) { return server.accepts_more; });
  if (any_to_place && !any_accepts && !problem.partial) {
    return absl::UnavailableError("no server to place layers on");
  }
  return absl::OkStatus();
}

absl::Status DoesNotFit(const PlacementProblem& problem, size_t layer) {
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
      " bytes and fits no server; all layers need at least ",
      AddBytes(needed, workspace), " bytes, the servers have ", available,
      " free (", absl::StrJoin(free, ", "),
      "): add servers, raise their memory limit, or register fewer layers"));
}

}  // namespace

absl::StatusOr<Placement> Place(const PlacementProblem& problem) {
  KRONSERVE_RETURN_IF_ERROR(Check(problem));
  Attempt by_time(problem);
  const std::vector<size_t> left_by_time = PlaceByTime(problem, &by_time);
  if (left_by_time.empty()) return by_time.TakePlacement();
  Attempt by_bytes(problem);
  const std::vector<size_t> left_by_bytes = PlaceByBytes(problem, &by_bytes);
  if (left_by_bytes.empty()) return by_bytes.TakePlacement();
  if (!problem.partial) return DoesNotFit(problem, left_by_bytes.front());
  return left_by_time.size() <= left_by_bytes.size() ? by_time.TakePlacement()
                                                     : by_bytes.TakePlacement();
}

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
  return std::max(total / static_cast<double>(servers.size()), dearest);
}

}  // namespace kronserve::placement
