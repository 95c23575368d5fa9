#include "tests/simulation/simulated_checkpoints.h"

#include <algorithm>
#include <tuple>

namespace kronserve::simulation {

const SimulatedCheckpoints::File* SimulatedCheckpoints::Newest(
    int layer) const {
  const auto found = files_.find(layer);
  if (found == files_.end()) return nullptr;
  const auto age = [](const File& file) {
    const v1::LayerSnapshot& meta = file.image.meta;
    return std::make_tuple(meta.epoch(), meta.world_version(),
                           meta.closed_through());
  };
  return &*std::max_element(
      found->second.begin(), found->second.end(),
      [&](const File& a, const File& b) { return age(a) < age(b); });
}

}  // namespace kronserve::simulation
