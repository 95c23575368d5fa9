#include "client/lost_owners.h"

#include <set>
#include <string>

namespace kronserve::client {

std::vector<bool> TakeLostOwners(const RoutingTable& routing, int num_layers,
                                 int64_t step, Suspects* suspects) {
  const std::set<std::string> found = suspects->TakeFound();
  std::vector<bool> lost(num_layers, false);
  if (found.empty()) return lost;
  for (int layer = 0; layer < num_layers; ++layer) {
    lost[layer] =
        found.count(routing.Owner(layer, step, routing.active_epoch())) > 0;
  }
  return lost;
}

void ShareLostOwners(const RoutingTable& routing, int64_t step,
                     const std::vector<bool>& lost, absl::Time now,
                     Suspects* suspects) {
  for (size_t layer = 0; layer < lost.size(); ++layer) {
    if (!lost[layer]) continue;
    const std::string owner =
        routing.Owner(static_cast<int>(layer), step, routing.active_epoch());
    if (!owner.empty()) suspects->AddShared(owner, now);
  }
}

}  // namespace kronserve::client
