// A layer on this server, and where it stands between two owners.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.
// Source: docs/moving_layers.md.

#ifndef KRONSERVE_SERVER_HELD_LAYER_H_
#define KRONSERVE_SERVER_HELD_LAYER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "server/layer_state.h"

namespace kronserve::server {

// The sending of a layer that leaves.
struct Handover {
  uint64_t attempt = 0;  // Of the transfer under way; 0: none.
  absl::Duration delay;  // Before the last retry.
  // When to try again; InfinitePast(): as soon as the layer is ready.
  absl::Time retry_at = absl::InfinitePast();
  std::string failure;  // The last one that was logged.
};

// What was last written of a layer in the background.
struct SavedState {
  int64_t updates = 0;
  int64_t version = 0;
  bool writing = false;
  // Not before; InfinitePast() before the first change.
  absl::Time due = absl::InfinitePast();
};

//             ,--- its state came, or is not to be had ---.
//   (placed) AWAITED ------------------------------------> OWNED <-.
//                                                           |      | back to
//               another is to own it, this is its source    v      | the source
//   (freed) <------------------- taken by the new owner -- LEAVING-'
struct HeldLayer {
  explicit HeldLayer(LayerState state) : state(std::move(state)) {}

  int index = 0;
  uint64_t instance = 0;     // Never used twice; see LayerKey.
  int64_t from_step = 0;     // First step answered here.
  int64_t newest_step = -1;  // Newest step seen in a call or a closed round.
  LayerState state;
  // Gradient requests that wait for an answer, oldest first.
  std::vector<uint64_t> waiting;

  v1::LayerPhase phase = v1::LAYER_PHASE_OWNED;
  // First epoch of this placement: what an older one sends comes too late.
  uint64_t since_epoch = 0;
  // AWAITED: the server that hands it over. OWNED: the one that did. Empty: it
  // starts from a checkpoint or the next factors.
  std::string source;
  bool restoring = false;  // AWAITED: a RestoreTask is under way.
  // AWAITED: a request has waited as long as it could; later ones fall back at
  // once, or each step would take its whole budget.
  bool wait_spent = false;
  // LEAVING, or AWAITED and to leave when its checkpoint is read: the new
  // owner.
  std::string target;
  // With a target: first step that is not answered here: the placement's, or
  // the one after the newest that had begun here when this server heard of the
  // move.
  int64_t until_step = 0;
  int64_t placed_step = 0;  // With a target: the placement's.
  Handover handover;
  SavedState saved;

  bool is_awaited() const { return phase == v1::LAYER_PHASE_AWAITED; }
  bool is_leaving() const { return phase == v1::LAYER_PHASE_LEAVING; }
  bool is_to_leave() const { return !target.empty(); }
};

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_HELD_LAYER_H_
