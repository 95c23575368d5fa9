// Job checkpoints: all layers of a job after one step, and their manifest.
//
// Layer: checkpoint. May include proto/ and common/.

#ifndef KRONSERVE_CHECKPOINT_JOB_FILES_H_
#define KRONSERVE_CHECKPOINT_JOB_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/layer_file.h"
#include "checkpoint/store.h"

namespace kronserve::checkpoint {

// `folder` is that of one checkpoint id. As CheckpointStore::WriteJobLayer().
absl::StatusOr<v1::CheckpointFile> WriteJobFile(
    Writer* writer, const std::string& folder, const v1::LayerSnapshot& meta,
    const std::vector<Tensor>& tensors);

// As CheckpointStore::CommitManifest(). Files of servers that the manifest does
// not list, left by owners that were replaced, are removed; others stay.
absl::Status CommitJobFiles(Writer* writer, const std::string& folder,
                            v1::CheckpointManifest manifest);

// Reads the file of layer `layer` and checks it against the manifest: job,
// layer, step, size and checksum.
//
// Errors: as ReadLayerFile(); kDataLoss when it is not the file listed.
absl::StatusOr<StoredLayer> ReadJobFile(const std::string& folder,
                                        const v1::CheckpointManifest& manifest,
                                        int layer);

// As CheckpointStore::ReadManifest(); `id` names the folder.
absl::StatusOr<v1::CheckpointManifest> ReadManifestOf(
    const std::string& checkpoints_folder, const std::string& id);

}  // namespace kronserve::checkpoint

#endif  // KRONSERVE_CHECKPOINT_JOB_FILES_H_
