// Small files by which servers see that they share a directory.
//
// Layer: checkpoint. May include proto/ and common/.

#ifndef KRONSERVE_CHECKPOINT_MARKERS_H_
#define KRONSERVE_CHECKPOINT_MARKERS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "checkpoint/durable_file.h"
#include "kronserve/v1/scheduler.pb.h"

namespace kronserve::checkpoint {

// Writes DIR/.servers/NAME-INCARNATION for the writer and removes those of its
// earlier incarnations.
//
// Errors: as CheckpointStore.
absl::Status WriteMarker(Writer* writer, const std::string& directory);

// Whether the writer's own marker is still there. If not, `directory` is not
// what it was: another file system, most likely none, is mounted there.
//
// Errors:
//   kFailedPrecondition  says so.
absl::Status CheckMarker(const Writer& writer, const std::string& directory);

// One line for each peer whose marker cannot be read, with the reason.
std::vector<std::string> UnreadableMarkers(
    const std::string& directory, const std::vector<v1::ServerAddress>& peers);

}  // namespace kronserve::checkpoint

#endif  // KRONSERVE_CHECKPOINT_MARKERS_H_
