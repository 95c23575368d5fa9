// What ranks tell one another in the step vote of the servers they cannot hear.
//
// Layer: client. May include proto/ and common/.
// docs/decisions/0005 says why.

#ifndef KRONSERVE_CLIENT_SILENT_OWNERS_H_
#define KRONSERVE_CLIENT_SILENT_OWNERS_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "client/routing_table.h"
#include "client/suspects.h"

namespace kronserve::client {

// A rank's part of the vote: per layer, whether its owner at `step` is a
// suspect that this rank has not heard since.
std::vector<bool> SilentOwners(const RoutingTable& routing, int num_layers,
                               int64_t step, const Suspects& suspects);

// What a rank knows of the servers of its job.
struct Bearings {
  RoutingTable* routing = nullptr;
  Suspects* suspects = nullptr;
};

// What follows from the vote on `step`, the same on all ranks: owners that any
// rank cannot hear are suspects, the others are not; `epoch` becomes active;
// and of servers that own nothing at the next step nothing is known any more.
//
//   silent  [layers], set where any rank said so.
void TakeVote(int64_t step, const std::vector<bool>& silent, uint64_t epoch,
              absl::Time now, Bearings bearings);

}  // namespace kronserve::client

#endif  // KRONSERVE_CLIENT_SILENT_OWNERS_H_
