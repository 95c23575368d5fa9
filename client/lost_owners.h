// What ranks tell one another in the step vote of the servers they lost.
//
// Layer: client. May include proto/ and common/.
// docs/decisions/0005 says why.

#ifndef KRONSERVE_CLIENT_LOST_OWNERS_H_
#define KRONSERVE_CLIENT_LOST_OWNERS_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "client/routing_table.h"
#include "client/suspects.h"

namespace kronserve::client {

// Per layer: whether its owner at `step` became a suspect of this rank since
// the last call.
std::vector<bool> TakeLostOwners(const RoutingTable& routing, int num_layers,
                                 int64_t step, Suspects* suspects);

// Suspects the owners at `step` of the layers that are set in `lost`.
void ShareLostOwners(const RoutingTable& routing, int64_t step,
                     const std::vector<bool>& lost, absl::Time now,
                     Suspects* suspects);

}  // namespace kronserve::client

#endif  // KRONSERVE_CLIENT_LOST_OWNERS_H_
