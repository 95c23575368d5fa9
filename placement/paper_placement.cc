#include "placement/paper_placement.h"

#include <algorithm>

namespace kronserve::placement {

PaperPlacement PlaceAsSpdKfac(const std::vector<LayerDims>& layers,
                              int num_workers, int64_t threshold) {
  struct Factor {
    int64_t side;
    int* rank;
  };
  PaperPlacement placement;
  placement.rank_a.assign(layers.size(), kEveryWorker);
  placement.rank_g.assign(layers.size(), kEveryWorker);
  placement.loads.assign(num_workers, 0);
  std::vector<Factor> factors;
  for (size_t i = 0; i < layers.size(); ++i) {
    factors.push_back({layers[i].d_in, &placement.rank_a[i]});
    factors.push_back({layers[i].d_out, &placement.rank_g[i]});
  }
  std::stable_sort(
      factors.begin(), factors.end(),
      [](const Factor& a, const Factor& b) { return a.side > b.side; });
  for (const Factor& factor : factors) {
    if (factor.side < threshold) continue;
    const auto least =
        std::min_element(placement.loads.begin(), placement.loads.end());
    *factor.rank = static_cast<int>(least - placement.loads.begin());
    *least += factor.side;
  }
  return placement;
}

}  // namespace kronserve::placement
