#include "checkpoint/manifest_file.h"

#include "absl/strings/str_cat.h"
#include "checkpoint/frame.h"
#include "checkpoint/names.h"
#include "checkpoint/snapshot_check.h"
#include "common/status_macros.h"

namespace kronserve::checkpoint {
namespace {

std::string ManifestPath(const std::string& folder) {
  return absl::StrCat(folder, "/", kManifestName);
}

}  // namespace

absl::Status WriteManifest(Writer* writer, const std::string& folder,
                           const v1::CheckpointManifest& manifest) {
  KRONSERVE_RETURN_IF_ERROR(CheckManifest(manifest));
  return WriteFrame(writer, ManifestPath(folder), FrameKind::kManifest,
                    manifest.SerializeAsString(), {})
      .status();
}

absl::StatusOr<v1::CheckpointManifest> ReadManifestFile(
    const std::string& folder) {
  KRONSERVE_ASSIGN_OR_RETURN(
      const auto reader,
      FrameReader::Open(ManifestPath(folder), FrameKind::kManifest));
  KRONSERVE_RETURN_IF_ERROR(reader->Finish().status());
  v1::CheckpointManifest manifest;
  if (!manifest.ParseFromString(reader->header())) {
    return reader->Fault("header: is not a CheckpointManifest");
  }
  const absl::Status sound = CheckManifest(manifest);
  if (!sound.ok()) {
    return reader->Fault(absl::StrCat("header: ", sound.message()));
  }
  return manifest;
}

}  // namespace kronserve::checkpoint
