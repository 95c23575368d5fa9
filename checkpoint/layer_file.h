// One layer's state as a file (docs/checkpoint_format.md).
//
// Layer: checkpoint. May include proto/ and common/.

#ifndef KRONSERVE_CHECKPOINT_LAYER_FILE_H_
#define KRONSERVE_CHECKPOINT_LAYER_FILE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/frame.h"
#include "checkpoint/store.h"
#include "kronserve/v1/snapshot.pb.h"
#include "proto/tensor_chunks.h"

namespace kronserve::checkpoint {

// Writes `path`, durably; a file of this name is replaced.
//
// Errors: as CheckpointStore.
absl::StatusOr<FileSum> WriteLayerFile(Writer* writer, const std::string& path,
                                       const v1::LayerSnapshot& meta,
                                       const std::vector<Tensor>& tensors);

struct LayerFile {
  StoredLayer layer;
  FileSum sum;
};

// Judges a header before anything is allocated for its tensors; an error is
// returned by ReadLayerFile() with the path in front.
using AcceptHeader = std::function<absl::Status(const v1::LayerSnapshot&)>;
inline absl::Status AcceptAnyHeader(const v1::LayerSnapshot&) {
  return absl::OkStatus();
}

// Reads and checks a whole file. Nothing that is wrong is repaired or filled
// in.
//
// Errors, each with the path, the field and the numbers:
//   kNotFound, kPermissionDenied, kFailedPrecondition, kDataLoss  as
//                FrameReader; kDataLoss also for a header that contradicts
//                itself or the file's size, a tensor's checksum, and values
//                that are not finite.
//   others       what `accept` returned.
absl::StatusOr<LayerFile> ReadLayerFile(const std::string& path,
                                        const AcceptHeader& accept);

// Reads the header and the size alone: cheap, and blind to damaged tensors.
//
// Errors: as ReadLayerFile().
absl::StatusOr<v1::LayerSnapshot> ReadLayerHeader(const std::string& path);

}  // namespace kronserve::checkpoint

#endif  // KRONSERVE_CHECKPOINT_LAYER_FILE_H_
