// Who owns a layer at a step, by the assignments this rank has seen.
//
// Layer: client. May include proto/ and common/.
// Newer assignments are adopted as soon as they come, but used only once all
// ranks hold them: the epoch that the step vote agreed on at step t is used at
// t + 1 (PROTOCOL.md 1).

#ifndef KRONSERVE_CLIENT_ROUTING_TABLE_H_
#define KRONSERVE_CLIENT_ROUTING_TABLE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kronserve/v1/job.pb.h"

namespace kronserve::client {

// The assignments of one job, newest epochs first in effect.
//
// Thread safety: none.
// Invariants:    epochs and terms only grow; active_epoch() <= held_epoch().
class RoutingTable {
 public:
  RoutingTable(std::string job, int num_layers)
      : job_(std::move(job)), num_layers_(num_layers) {}

  // Holds `assignment` if it is newer. The first one becomes active at once.
  // Returns false, and changes nothing, for one that is not newer: an epoch
  // already held, or a term below the highest one seen.
  //
  // Errors:
  //   kInvalidArgument  another job, another number of layers, layers out of
  //                     order, or an owner without an address; names it. The
  //                     table is unchanged.
  absl::StatusOr<bool> Adopt(const v1::Assignment& assignment);

  int num_layers() const { return num_layers_; }

  // Makes the newest held epoch up to `agreed` active; never goes back.
  void Activate(uint64_t agreed);

  uint64_t held_epoch() const;  // 0 before the first Adopt().
  uint64_t active_epoch() const { return active_; }
  uint64_t term() const { return term_; }

  // The server that answers `layer` at `step`, as of `epoch`. The newest
  // assignment up to `epoch` decides: its server from from_step on, before that
  // its source; without a source the assignment before it decides. When none
  // held reaches back to `step`, the newest server: it may have the state.
  // Empty when the layer had no owner then.
  std::string Owner(int layer, int64_t step, uint64_t epoch) const;

  // The owner of `layer` by the newest assignment, whatever its from_step.
  std::string NewestOwner(int layer) const;
  // The server that `layer` moves away from by the newest assignment; empty
  // when it does not move.
  std::string NewestSource(int layer) const;

  // Whether the newest assignment still has some layer at `server`, or on its
  // way from there.
  bool NewestNeeds(const std::string& server) const;

  // Every server that answers some layer at `step`, as of `epoch`; sorted.
  std::vector<std::string> Owners(int64_t step, uint64_t epoch) const;

  // host:port of `server` by the newest assignment that names it.
  std::string Address(const std::string& server) const;

 private:
  absl::Status Check(const v1::Assignment& assignment) const;

  const std::string job_;
  const int num_layers_;
  uint64_t active_ = 0;
  uint64_t term_ = 0;
  std::map<uint64_t, v1::Assignment> held_;  // By epoch.
};

}  // namespace kronserve::client

#endif  // KRONSERVE_CLIENT_ROUTING_TABLE_H_
