// Names of files and folders, and what may stand in them.
//
// Layer: checkpoint. May include proto/ and common/.
// Names of jobs, runs, layers and servers come from others: none of them can
// leave its folder, be hidden, or be longer than a file system takes.

#ifndef KRONSERVE_CHECKPOINT_NAMES_H_
#define KRONSERVE_CHECKPOINT_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace kronserve::checkpoint {

inline constexpr char kManifestName[] = "MANIFEST";
inline constexpr char kTrainerName[] = "TRAINER";
// As whom a trainer writes; its half-written files are called so.
inline constexpr char kTrainerWriter[] = "trainer";
// What temporary files of all writers begin with: NAME-... of who writes.
inline constexpr char kTemporaryPrefix[] = ".tmp-";
inline constexpr char kMarkersName[] = ".servers";
inline constexpr char kBackgroundName[] = "background";
inline constexpr char kCheckpointsName[] = "checkpoints";

// `name` as one component of a path, 1 to 120 bytes: letters, digits, '-', '_'
// and '.' as they are, a leading '.' and every other byte as %XX; the empty
// name is "%". Longer ones end with '~' and the checksum of the whole name.
std::string EscapeName(const std::string& name);

// Ids of job checkpoints name folders as they are.
//
// Errors:
//   kInvalidArgument  not 1 to 64 of [A-Za-z0-9._-], or a leading '.'.
absl::Status CheckCheckpointId(const std::string& id);

// Whether a name that was read from a file stays in its folder: not empty, no
// '/', no leading '.', at most 255 bytes.
bool IsPlainFileName(const std::string& name);

// Whether a file is called as those of layers are, in either kind of
// checkpoint; half-written ones are not.
bool IsLayerFileName(const std::string& name);

// What orders the background files of a layer.
struct BackgroundKey {
  uint64_t epoch = 0;
  int64_t world_version = 0;
  int64_t closed_through = -1;
};
bool operator<(const BackgroundKey& a, const BackgroundKey& b);

// "epoch7-world2-step1041.kron"; a layer without a closed step has "step-1".
std::string BackgroundFileName(const BackgroundKey& key);
// Absent for every other name.
std::optional<BackgroundKey> ParseBackgroundFileName(const std::string& name);

// "00012-fc1-epoch7.kron": layer 12 of a job checkpoint.
std::string JobLayerFileName(int layer, const std::string& layer_name,
                             uint64_t epoch);

// DIR/JOB, DIR/JOB/background/RUN, DIR/JOB/background/RUN/LAYER,
// DIR/JOB/checkpoints, DIR/JOB/checkpoints/ID; escaped where need be.
std::string JobFolder(const std::string& directory, const std::string& job);
std::string RunFolder(const std::string& directory, const std::string& job,
                      const std::string& run_id);
std::string LayerFolder(const std::string& run_folder,
                        const std::string& layer_name);
std::string CheckpointsFolder(const std::string& directory,
                              const std::string& job);
std::string CheckpointFolder(const std::string& directory,
                             const std::string& job, const std::string& id);

}  // namespace kronserve::checkpoint

#endif  // KRONSERVE_CHECKPOINT_NAMES_H_
