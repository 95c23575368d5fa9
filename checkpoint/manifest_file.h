// The file that makes a job checkpoint complete.
//
// Layer: checkpoint. May include proto/ and common/.

#ifndef KRONSERVE_CHECKPOINT_MANIFEST_FILE_H_
#define KRONSERVE_CHECKPOINT_MANIFEST_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/durable_file.h"
#include "kronserve/v1/checkpoint.pb.h"

namespace kronserve::checkpoint {

// Writes FOLDER/MANIFEST, durably.
//
// Errors: as CheckpointStore; and those of CheckManifest().
absl::Status WriteManifest(Writer* writer, const std::string& folder,
                           const v1::CheckpointManifest& manifest);

// Reads FOLDER/MANIFEST.
//
// Errors: as FrameReader; kDataLoss also for a manifest that contradicts
// itself.
absl::StatusOr<v1::CheckpointManifest> ReadManifestFile(
    const std::string& folder);

}  // namespace kronserve::checkpoint

#endif  // KRONSERVE_CHECKPOINT_MANIFEST_FILE_H_
