#include "checkpoint/job_files.h"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest_file.h"
#include "checkpoint/names.h"
#include "checkpoint/snapshot_check.h"
#include "common/status_macros.h"

namespace kronserve::checkpoint {
namespace {

// Whether the header of a file is that of the manifest's layer.
absl::Status CheckHeader(const v1::LayerSnapshot& meta,
                         const v1::CheckpointManifest& manifest, int layer) {
  v1::JobConfig listed;
  listed.set_job(manifest.job());
  *listed.mutable_layers() = manifest.layers();
  *listed.mutable_options() = manifest.options();
  const absl::Status fits = CheckSnapshotFits(meta, listed, layer);
  if (!fits.ok()) {
    return absl::Status(
        fits.code(),
        absl::StrCat("is not the manifest's layer: ", fits.message()));
  }
  if (meta.closed_through() <= manifest.step()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("closed_through is ", meta.closed_through(),
                   ", past the cut after step ", manifest.step()));
}

absl::Status CheckListed(const std::string& folder,
                         const v1::CheckpointManifest& manifest, int layer) {
  const v1::CheckpointFile& file = manifest.files(layer);
  const std::string path = absl::StrCat(folder, "/", file.path());
  const auto meta = ReadLayerHeader(path);
  absl::Status status = meta.status();
  if (status.ok()) status = CheckHeader(*meta, manifest, layer);
  if (status.ok() && FileBytes(path) != file.size_bytes()) {
    status = absl::FailedPreconditionError(
        absl::StrCat("'", path, "' has ", FileBytes(path), " bytes, ",
                     file.size_bytes(), " are listed"));
  }
  if (status.ok()) return status;
  return absl::FailedPreconditionError(
      absl::StrCat("layer '", manifest.layers(layer).name(),
                   "' cannot be part of checkpoint '", manifest.id(),
                   "': ", status.message()));
}

// Whether servers write files of this name. The trainer's is not theirs to
// judge: a commit that is tried again may find it there already.
bool IsOfServers(const std::string& name) {
  const bool of_trainer = absl::StartsWith(
      name, absl::StrCat(kTemporaryPrefix, kTrainerWriter, "-"));
  return IsLayerFileName(name) ||
         (absl::StartsWith(name, kTemporaryPrefix) && !of_trainer);
}

// What owners wrote that were replaced before the cut was complete.
void RemoveUnlisted(const std::string& folder,
                    const v1::CheckpointManifest& manifest) {
  std::set<std::string> listed;
  for (const v1::CheckpointFile& file : manifest.files()) {
    listed.insert(file.path());
  }
  const auto names = ListFolder(folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (IsOfServers(name) && listed.count(name) == 0) {
      unlink(absl::StrCat(folder, "/", name).c_str());
    }
  }
}

}  // namespace

absl::StatusOr<v1::CheckpointFile> WriteJobFile(
    Writer* writer, const std::string& folder, const v1::LayerSnapshot& meta,
    const std::vector<Tensor>& tensors) {
  KRONSERVE_RETURN_IF_ERROR(MakeFolders(writer, folder));
  if (FileBytes(absl::StrCat(folder, "/", kManifestName)) > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint '", folder, "' is complete already"));
  }
  v1::CheckpointFile file;
  file.set_layer(meta.layer_index());
  file.set_path(
      JobLayerFileName(meta.layer_index(), meta.layer().name(), meta.epoch()));
  KRONSERVE_ASSIGN_OR_RETURN(
      const FileSum sum,
      WriteLayerFile(writer, absl::StrCat(folder, "/", file.path()), meta,
                     tensors));
  file.set_size_bytes(sum.bytes);
  file.set_checksum(sum.checksum);
  return file;
}

absl::Status CommitJobFiles(Writer* writer, const std::string& folder,
                            v1::CheckpointManifest manifest) {
  std::sort(manifest.mutable_files()->begin(), manifest.mutable_files()->end(),
            [](const v1::CheckpointFile& a, const v1::CheckpointFile& b) {
              return a.layer() < b.layer();
            });
  KRONSERVE_RETURN_IF_ERROR(CheckManifest(manifest));
  const auto existing = ReadManifestFile(folder);
  if (existing.ok()) {
    if (existing->SerializeAsString() == manifest.SerializeAsString()) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint '", folder,
                     "' is complete already, with another manifest"));
  }
  for (int layer = 0; layer < manifest.layers_size(); ++layer) {
    KRONSERVE_RETURN_IF_ERROR(CheckListed(folder, manifest, layer));
  }
  KRONSERVE_RETURN_IF_ERROR(WriteManifest(writer, folder, manifest));
  RemoveUnlisted(folder, manifest);
  return absl::OkStatus();
}

absl::StatusOr<StoredLayer> ReadJobFile(const std::string& folder,
                                        const v1::CheckpointManifest& manifest,
                                        int layer) {
  const v1::CheckpointFile& listed = manifest.files(layer);
  const std::string path = absl::StrCat(folder, "/", listed.path());
  KRONSERVE_ASSIGN_OR_RETURN(
      LayerFile file, ReadLayerFile(path, [&](const v1::LayerSnapshot& meta) {
        return CheckHeader(meta, manifest, layer);
      }));
  if (file.sum.bytes != listed.size_bytes() ||
      file.sum.checksum != listed.checksum()) {
    return absl::DataLossError(
        absl::StrCat("checkpoint file '", path,
                     "': is another file than the manifest "
                     "lists: ",
                     file.sum.bytes, " bytes, checksum ",
                     absl::Hex(file.sum.checksum, absl::kZeroPad16),
                     "; listed ", listed.size_bytes(), " bytes, checksum ",
                     absl::Hex(listed.checksum(), absl::kZeroPad16)));
  }
  return std::move(file.layer);
}

absl::StatusOr<v1::CheckpointManifest> ReadManifestOf(
    const std::string& checkpoints_folder, const std::string& id) {
  const std::string folder = absl::StrCat(checkpoints_folder, "/", id);
  KRONSERVE_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest,
                             ReadManifestFile(folder));
  if (manifest.id() == id) return manifest;
  return absl::DataLossError(absl::StrCat("manifest in '", folder,
                                          "': id: is '", manifest.id(),
                                          "', the folder is '", id, "'"));
}

}  // namespace kronserve::checkpoint
