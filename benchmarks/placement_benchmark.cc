// How long placing and rebalancing take, and how even the result is, with
// layers and servers doubled from row to row.
//
// Sides and speeds are drawn from a fixed seed; memory holds twice what is
// placed. Times are the best of five, on one thread.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <random>

#include "placement/placement.h"
#include "placement/rebalance.h"

namespace kronserve::placement {
namespace {

constexpr int kRepeats = 5;

PlacementProblem MakeProblem(int num_layers, int num_servers, bool equal) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> side(6, 12);
  std::uniform_int_distribution<int> slowness(1, 3);
  PlacementProblem problem;
  int64_t bytes = 0;
  for (int i = 0; i < num_layers; ++i) {
    PlacedLayer layer;
    layer.work = LayerWork(1 << side(random), 1 << side(random));
    layer.bytes = static_cast<int64_t>(layer.work.d2) * 16;
    bytes += layer.bytes;
    problem.layers.push_back(layer);
  }
  for (int i = 0; i < num_servers; ++i) {
    PlacementServer server;
    server.curve = {1e-4, 1e-9, 1e-11};
    if (!equal) server.curve.seconds_per_d3 *= slowness(random);
    server.free_bytes = 2 * bytes / num_servers + (int64_t{1} << 30);
    problem.servers.push_back(server);
  }
  return problem;
}

template <typename Call>
double BestMilliseconds(const Call& call) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double, std::milli> took =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  return best;
}

double Ratio(const PlacementProblem& problem,
             const std::vector<double>& load_seconds) {
  std::vector<RefreshWork> works;
  std::vector<CostCurve> curves;
  for (const PlacedLayer& layer : problem.layers) works.push_back(layer.work);
  for (const PlacementServer& server : problem.servers) {
    if (!server.draining) curves.push_back(server.curve);
  }
  return *std::max_element(load_seconds.begin(), load_seconds.end()) /
         LowerBoundSeconds(works, curves);
}

void Measure(int num_layers, int num_servers, bool equal) {
  PlacementProblem problem = MakeProblem(num_layers, num_servers, equal);
  Placement placed;
  const double place_ms = BestMilliseconds([&] { placed = *Place(problem); });
  const double place_ratio = Ratio(problem, placed.load_seconds);
  // One server in a hundred leaves, as many come.
  for (int i = 0; i < num_layers; ++i) {
    problem.layers[i].owner = placed.owners[i];
  }
  const int changed = std::max(num_servers / 100, 1);
  for (int i = 0; i < changed; ++i) {
    problem.servers[i].draining = true;
    problem.servers.push_back(problem.servers.back());
  }
  Rebalancing moved;
  const double rebalance_ms =
      BestMilliseconds([&] { moved = *Rebalance(problem, {}); });
  std::printf("%7d %8d %8s %9.1f %7.3f %13.1f %7d %7.3f\n", num_layers,
              num_servers, equal ? "equal" : "1 to 3", place_ms, place_ratio,
              rebalance_ms, moved.num_moves,
              Ratio(problem, moved.load_seconds));
}

}  // namespace
}  // namespace kronserve::placement

int main() {
  std::printf(
      " layers  servers   speeds  place ms  /bound  rebalance ms   moves  "
      "/bound\n");
  for (bool equal : {true, false}) {
    for (int scale : {1, 2, 4}) {
      kronserve::placement::Measure(2500 * scale, 250 * scale, equal);
    }
    kronserve::placement::Measure(10000, 8, equal);
    kronserve::placement::Measure(200, 1000, equal);
  }
  return 0;
}
