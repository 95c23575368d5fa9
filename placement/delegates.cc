#include "placement/delegates.h"

#include <algorithm>
#include <numeric>

namespace kronserve::placement {
namespace {

// Ranks by node, nodes in order of their first rank.
std::vector<std::vector<int>> RanksOfNodes(
    const std::vector<std::string>& node_of_rank) {
  std::vector<std::string> names;
  std::vector<std::vector<int>> ranks;
  for (size_t rank = 0; rank < node_of_rank.size(); ++rank) {
    const auto found =
        std::find(names.begin(), names.end(), node_of_rank[rank]);
    const size_t node = found - names.begin();
    if (found == names.end()) {
      names.push_back(node_of_rank[rank]);
      ranks.emplace_back();
    }
    ranks[node].push_back(static_cast<int>(rank));
  }
  return ranks;
}

// Layers, heaviest first; equal ones in layer order.
std::vector<size_t> HeaviestFirst(const std::vector<double>& weights) {
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return weights[a] > weights[b]; });
  return order;
}

// Doubles: exact for every sum below 2^53, and no side can overflow them.
std::vector<double> Weights(const std::vector<LayerDims>& layers) {
  std::vector<double> weights;
  for (const LayerDims& layer : layers) {
    const double in = static_cast<double>(layer.d_in);
    const double out = static_cast<double>(layer.d_out);
    weights.push_back(in * in + out * out);
  }
  return weights;
}

int LeastLoaded(const std::vector<int>& ranks,
                const std::vector<double>& load) {
  return *std::min_element(ranks.begin(), ranks.end(),
                           [&](int a, int b) { return load[a] < load[b]; });
}

}  // namespace

Delegates ChooseDelegates(const std::vector<std::string>& node_of_rank,
                          const std::vector<LayerDims>& layers,
                          FactorSource source) {
  const std::vector<std::vector<int>> nodes = RanksOfNodes(node_of_rank);
  std::vector<double> node_load(nodes.size(), 0.0);
  std::vector<double> rank_load(node_of_rank.size(), 0.0);
  Delegates delegates;
  delegates.gradient_rank.assign(layers.size(), 0);
  delegates.contributors.resize(layers.size());
  delegates.collector.assign(layers.size(),
                             std::vector<int>(node_of_rank.size(), -1));
  const std::vector<double> weights = Weights(layers);
  for (size_t layer : HeaviestFirst(weights)) {
    const size_t home = std::min_element(node_load.begin(), node_load.end()) -
                        node_load.begin();
    node_load[home] += weights[layer];
    for (size_t node = 0; node < nodes.size(); ++node) {
      if (node != home && source == FactorSource::kOneRank) continue;
      const int chosen = LeastLoaded(nodes[node], rank_load);
      rank_load[chosen] += weights[layer];
      if (node == home) delegates.gradient_rank[layer] = chosen;
      delegates.contributors[layer].push_back(chosen);
      delegates.collector[layer][chosen] = chosen;
      if (source == FactorSource::kOneRank) continue;
      for (int rank : nodes[node]) delegates.collector[layer][rank] = chosen;
    }
    std::sort(delegates.contributors[layer].begin(),
              delegates.contributors[layer].end());
  }
  return delegates;
}

}  // namespace kronserve::placement
