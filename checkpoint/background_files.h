// Background checkpoints: for each layer of a run the newest few states.
//
// Layer: checkpoint. May include proto/ and common/.

#ifndef KRONSERVE_CHECKPOINT_BACKGROUND_FILES_H_
#define KRONSERVE_CHECKPOINT_BACKGROUND_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/names.h"
#include "checkpoint/store.h"
#include "kronserve/v1/snapshot.pb.h"

namespace kronserve::checkpoint {

// The background files of one layer's folder, newest first; other names are
// left out.
//
// Errors: as ListFolder().
absl::StatusOr<std::vector<std::string>> ListBackground(
    const std::string& layer_folder);

// Whether the header says what the file's name says: one that was renamed must
// not pass for a newer one.
//
// Errors:
//   kDataLoss  names the name that the header belongs to.
absl::Status CheckBackgroundName(const v1::LayerSnapshot& meta,
                                 const std::string& name);

// Removes all but the newest `keep`; what cannot be removed stays.
void RemoveOldBackground(const std::string& layer_folder, int keep);

// As CheckpointStore::ReadNewest().
Newest ReadNewestBackground(const std::string& layer_folder,
                            const v1::JobConfig& config, int layer);

}  // namespace kronserve::checkpoint

#endif  // KRONSERVE_CHECKPOINT_BACKGROUND_FILES_H_
