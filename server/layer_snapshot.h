// The state of a layer as something that can be sent and stored.
//
// Layer: server. May include checkpoint/, curvature/, placement/, linalg/,
// proto/, common/.
// LayerContents shares what a LayerState holds, so that taking it is quick;
// PackLayer() and UnpackLayer() look at every element and run as tasks. A state
// fits into a job whose layer and whose checkpoint::StateOptions() are equal.
// Source: PROTOCOL.md 2, 6 and 10; snapshot.proto.

#ifndef KRONSERVE_SERVER_LAYER_SNAPSHOT_H_
#define KRONSERVE_SERVER_LAYER_SNAPSHOT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "curvature/preconditioner.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "kronserve/v1/snapshot.pb.h"
#include "proto/tensor_chunks.h"
#include "server/tasks.h"

namespace kronserve::server {

// A refresh that succeeded, as readers hold it.
struct Published {
  curvature::Factorization<float> factorization;
  int64_t version = 0;      // Merged rounds behind it.
  int64_t factor_step = 0;  // Step of the newest of them.
};

// What a layer is between two steps: everything but its open rounds.
struct LayerContents {
  // All but `tensors`, which follow from the members below.
  v1::LayerSnapshot meta;
  Averages averages;                           // Null before the first merge.
  std::shared_ptr<const Published> published;  // Null before the first refresh.
};

// The same, one tensor per entry of `meta.tensors`.
struct LayerImage {
  v1::LayerSnapshot meta;
  std::vector<Tensor> tensors;
};

v1::RefreshRung ToProto(curvature::Rung rung);

// Shares the tensors of `contents`, without checksums: a checkpoint store fills
// them in.
LayerImage ShareLayer(const LayerContents& contents);

// The same with checksums, ready to be sent.
LayerImage PackLayer(const LayerContents& contents);

// Checks everything of a snapshot but the bytes of its tensors, whose sizes
// are then those that the layer has. All arithmetic is in 64 bits.
//
// Errors:
//   kFailedPrecondition  another layer or other state options; the first
//                        difference is named.
//   kInvalidArgument     it contradicts itself: names what, with the numbers.
absl::Status CheckSnapshot(const v1::LayerSnapshot& meta,
                           const v1::LayerSpec& layer,
                           const v1::JobOptions& options);

// The way back: CheckSnapshot(), and every tensor has its size and checksum
// and is finite.
//
// Errors: as CheckSnapshot(); a tensor that fails is kInvalidArgument.
absl::StatusOr<LayerContents> UnpackLayer(const LayerImage& image,
                                          const v1::LayerSpec& layer,
                                          const v1::JobOptions& options);

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_LAYER_SNAPSHOT_H_
