#include "checkpoint/file_store.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/background_files.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/folder.h"
#include "checkpoint/job_files.h"
#include "checkpoint/layer_file.h"
#include "checkpoint/markers.h"
#include "checkpoint/names.h"
#include "checkpoint/snapshot_check.h"
#include "common/status_macros.h"

namespace kronserve::checkpoint {
namespace {

WriteCalls* SystemCalls() {
  static WriteCalls calls;
  return &calls;
}

class FileStore final : public CheckpointStore {
 public:
  explicit FileStore(const FileStoreOptions& options) : options_(options) {
    writer_.calls = options.calls ? options.calls : SystemCalls();
    writer_.server = EscapeName(options.server);
    writer_.incarnation = options.incarnation;
  }

  absl::Status Start() { return WriteMarker(&writer_, options_.directory); }

  absl::StatusOr<int64_t> WriteBackground(
      const v1::LayerSnapshot& meta,
      const std::vector<Tensor>& tensors) override {
    KRONSERVE_RETURN_IF_ERROR(CheckSnapshot(meta));
    KRONSERVE_RETURN_IF_ERROR(CheckMarker(writer_, options_.directory));
    const std::string folder =
        LayerFolder(RunFolder(options_.directory, meta.job(), meta.run_id()),
                    meta.layer().name());
    KRONSERVE_RETURN_IF_ERROR(MakeFolders(&writer_, folder));
    const std::string name = BackgroundFileName(
        {meta.epoch(), meta.world_version(), meta.closed_through()});
    // Before the write: it may need the room.
    RemoveTemporaries(writer_, folder, options_.now(), options_.temporary_age);
    KRONSERVE_ASSIGN_OR_RETURN(
        const FileSum sum,
        WriteLayerFile(&writer_, absl::StrCat(folder, "/", name), meta,
                       tensors));
    RemoveOldBackground(folder, options_.keep);
    return sum.bytes;
  }

  Newest ReadNewest(const v1::JobConfig& config, int layer) override {
    const std::string folder = LayerFolder(
        RunFolder(options_.directory, config.job(), config.world().run_id()),
        config.layers(layer).name());
    return ReadNewestBackground(folder, config, layer);
  }

  absl::Status RemoveBackground(const std::string& job,
                                const std::string& run_id) override {
    return RemoveTree(RunFolder(options_.directory, job, run_id));
  }

  absl::StatusOr<v1::CheckpointFile> WriteJobLayer(
      const std::string& id, const v1::LayerSnapshot& meta,
      const std::vector<Tensor>& tensors) override {
    KRONSERVE_RETURN_IF_ERROR(CheckCheckpointId(id));
    KRONSERVE_RETURN_IF_ERROR(CheckSnapshot(meta));
    KRONSERVE_RETURN_IF_ERROR(CheckMarker(writer_, options_.directory));
    return WriteJobFile(&writer_,
                        CheckpointFolder(options_.directory, meta.job(), id),
                        meta, tensors);
  }

  absl::Status CommitManifest(const v1::CheckpointManifest& manifest) override {
    KRONSERVE_RETURN_IF_ERROR(CheckCheckpointId(manifest.id()));
    KRONSERVE_RETURN_IF_ERROR(CheckMarker(writer_, options_.directory));
    return CommitJobFiles(
        &writer_,
        CheckpointFolder(options_.directory, manifest.job(), manifest.id()),
        manifest);
  }

  absl::StatusOr<StoredLayer> ReadJobLayer(const v1::JobConfig& config,
                                           int layer,
                                           const std::string& id) override {
    KRONSERVE_ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest,
                               ReadManifest(config.job(), id));
    KRONSERVE_RETURN_IF_ERROR(CheckManifestFits(manifest, config));
    return ReadJobFile(CheckpointFolder(options_.directory, config.job(), id),
                       manifest, layer);
  }

  absl::StatusOr<v1::CheckpointManifest> ReadManifest(
      const std::string& job, const std::string& id) override {
    KRONSERVE_RETURN_IF_ERROR(CheckCheckpointId(id));
    return ReadManifestOf(CheckpointsFolder(options_.directory, job), id);
  }

  absl::StatusOr<std::vector<JobCheckpoint>> List(
      const std::string& job) override {
    const std::string folder = CheckpointsFolder(options_.directory, job);
    const auto ids = ListFolder(folder);
    std::vector<JobCheckpoint> checkpoints;
    if (absl::IsNotFound(ids.status())) return checkpoints;
    KRONSERVE_RETURN_IF_ERROR(ids.status());
    for (const std::string& id : *ids) {
      if (CheckCheckpointId(id).ok()) {
        checkpoints.push_back({id, ReadManifestOf(folder, id)});
      }
    }
    return checkpoints;
  }

  std::vector<std::string> UnreadablePeers(
      const std::vector<v1::ServerAddress>& peers) override {
    return UnreadableMarkers(options_.directory, peers);
  }

 private:
  const FileStoreOptions options_;
  Writer writer_;  // Its count is atomic; the rest is constant.
};

// The folder that `directory` is made in must be there: a file system that is
// not mounted is no place for what has to last.
absl::Status CheckParent(const std::string& directory) {
  std::error_code error;
  const std::filesystem::path path =
      std::filesystem::absolute(directory, error).lexically_normal();
  const std::filesystem::path parent = path.has_filename()
                                           ? path.parent_path()
                                           : path.parent_path().parent_path();
  if (std::filesystem::is_directory(parent, error)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("checkpoint directory '", directory,
                                          "': '", parent.string(),
                                          "' is not a folder; make it first"));
}

absl::Status CheckOptions(const FileStoreOptions& options) {
  if (options.directory.empty() || options.server.empty()) {
    return absl::InvalidArgumentError(
        "a checkpoint store needs a directory and the server's name");
  }
  if (options.incarnation == 0 || options.keep < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "incarnation ", options.incarnation, " must not be 0, keep ",
        options.keep, " must be at least 1"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointStore>> OpenFileStore(
    const FileStoreOptions& options) {
  KRONSERVE_RETURN_IF_ERROR(CheckOptions(options));
  KRONSERVE_RETURN_IF_ERROR(CheckParent(options.directory));
  auto store = std::make_unique<FileStore>(options);
  KRONSERVE_RETURN_IF_ERROR(store->Start());
  return store;
}

}  // namespace kronserve::checkpoint
