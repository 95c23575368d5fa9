// Whether a layer's state is one, and whether it is the one that a job needs.
//
// Layer: checkpoint. May include proto/ and common/.

#ifndef KRONSERVE_CHECKPOINT_SNAPSHOT_CHECK_H_
#define KRONSERVE_CHECKPOINT_SNAPSHOT_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kronserve/v1/checkpoint.pb.h"
#include "kronserve/v1/job.pb.h"
#include "kronserve/v1/snapshot.pb.h"

namespace kronserve::checkpoint {

// "AVERAGE_A"; "role 9" for a number without a name.
std::string RoleName(v1::SnapshotTensorRole role);

// The tensors of a state with or without averages and with what `meta` says is
// published: role and elements of each, in the order in which servers keep
// them. `meta.layer` has sides of at most 31 bits.
std::vector<v1::SnapshotTensor> ExpectedTensors(const v1::LayerSnapshot& meta,
                                                bool averages);

// The options that a layer's state depends on; the others are cleared. They
// are those that CheckSnapshotFits() compares.
v1::JobOptions StateOptions(const v1::JobOptions& options);

// Checks `meta` by itself: names and numbers in range; each tensor of a known
// role, once, with the elements that the layer's shape gives it; A and G
// averages together; factorisations (and, of method eigen, eigenvalues) with
// `published` and never without. Computed in 64 bits, nothing is allocated.
//
// Errors:
//   kInvalidArgument  names the field, the value and what it should be.
absl::Status CheckSnapshot(const v1::LayerSnapshot& meta);

// Whether the state can go on as layer `layer` of this job: name, kind, shape,
// bias and scales, and the options that averages and schedule depend on
// (method, damping form, factor init, both intervals, refresh schedule). The
// others may differ, and may have been cleared.
//
// Errors:
//   kFailedPrecondition  names the first difference with both values.
absl::Status CheckSnapshotFits(const v1::LayerSnapshot& meta,
                               const v1::JobConfig& config, int layer);

// Checks `manifest` by itself: its id; a table that is not empty; one file per
// layer, in layer order, of a name that stays in the folder.
//
// Errors:
//   kInvalidArgument     names the field and the value.
//   kFailedPrecondition  a layer has no file or more than one.
absl::Status CheckManifest(const v1::CheckpointManifest& manifest);

// Whether the whole layer table and the options of above are the job's.
//
// Errors:
//   kFailedPrecondition  names the first difference with both values.
absl::Status CheckManifestFits(const v1::CheckpointManifest& manifest,
                               const v1::JobConfig& config);

}  // namespace kronserve::checkpoint

#endif  // KRONSERVE_CHECKPOINT_SNAPSHOT_CHECK_H_
