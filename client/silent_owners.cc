#include "client/silent_owners.h"

#include <map>
#include <string>

namespace kronserve::client {

std::vector<bool> SilentOwners(const RoutingTable& routing, int num_layers,
                               int64_t step, const Suspects& suspects) {
  std::vector<bool> silent(num_layers, false);
  for (int layer = 0; layer < num_layers; ++layer) {
    silent[layer] =
        suspects.IsSilent(routing.Owner(layer, step, routing.active_epoch()));
  }
  return silent;
}

void TakeVote(int64_t step, const std::vector<bool>& silent, uint64_t epoch,
              absl::Time now, Bearings bearings) {
  const auto [routing, suspects] = bearings;
  std::map<std::string, bool> owners;
  for (size_t layer = 0; layer < silent.size(); ++layer) {
    owners[routing->Owner(static_cast<int>(layer), step,
                          routing->active_epoch())] |= silent[layer];
  }
  owners.erase("");
  for (const auto& [server, is_silent] : owners) {
    if (!is_silent) {
      suspects->Clear(server);
    } else if (!suspects->Contains(server)) {
      suspects->Add(server, now, "another rank cannot hear it");
    }
  }
  routing->Activate(epoch);
  suspects->KeepOnly(routing->Owners(step + 1, routing->active_epoch()));
}

}  // namespace kronserve::client
