#include "checkpoint/background_files.h"

#include <unistd.h>

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/folder.h"
#include "checkpoint/layer_file.h"
#include "checkpoint/snapshot_check.h"
#include "common/status_macros.h"

namespace kronserve::checkpoint {
namespace {

// Another server may write, and remove an older file, between our look at the
// folder and our look at the file; then we look again.
constexpr int kLooks = 3;

absl::Status CheckHeader(const v1::LayerSnapshot& meta, const std::string& name,
                         const v1::JobConfig& config, int layer) {
  KRONSERVE_RETURN_IF_ERROR(CheckBackgroundName(meta, name));
  if (meta.run_id() != config.world().run_id()) {
    return absl::FailedPreconditionError(
        absl::StrCat("run_id is '", meta.run_id(), "' in the checkpoint, '",
                     config.world().run_id(), "' in the job"));
  }
  return CheckSnapshotFits(meta, config, layer);
}

// Tries the files in turn; false when one had gone since they were listed.
bool ReadFirstGood(const std::string& folder,
                   const std::vector<std::string>& names,
                   const v1::JobConfig& config, int layer, Newest* newest) {
  bool all_there = true;
  for (const std::string& name : names) {
    auto file = ReadLayerFile(absl::StrCat(folder, "/", name),
                              [&](const v1::LayerSnapshot& meta) {
                                return CheckHeader(meta, name, config, layer);
                              });
    if (file.ok()) {
      newest->layer = std::move(file->layer);
      return true;
    }
    all_there = all_there && !absl::IsNotFound(file.status());
    newest->skipped.emplace_back(file.status().message());
  }
  return all_there;
}

}  // namespace

absl::Status CheckBackgroundName(const v1::LayerSnapshot& meta,
                                 const std::string& name) {
  const std::string expected = BackgroundFileName(
      {meta.epoch(), meta.world_version(), meta.closed_through()});
  if (name == expected) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("name: the header belongs to ", expected));
}

absl::StatusOr<std::vector<std::string>> ListBackground(
    const std::string& layer_folder) {
  KRONSERVE_ASSIGN_OR_RETURN(const auto names, ListFolder(layer_folder));
  std::map<BackgroundKey, std::string> sorted;
  for (const std::string& name : names) {
    const std::optional<BackgroundKey> key = ParseBackgroundFileName(name);
    if (key.has_value()) sorted[*key] = name;
  }
  std::vector<std::string> newest_first;
  for (auto it = sorted.rbegin(); it != sorted.rend(); ++it) {
    newest_first.push_back(it->second);
  }
  return newest_first;
}

void RemoveOldBackground(const std::string& layer_folder, int keep) {
  const auto names = ListBackground(layer_folder);
  if (!names.ok()) return;
  for (size_t i = keep; i < names->size(); ++i) {
    unlink(absl::StrCat(layer_folder, "/", (*names)[i]).c_str());
  }
}

Newest ReadNewestBackground(const std::string& layer_folder,
                            const v1::JobConfig& config, int layer) {
  Newest newest;
  bool done = false;
  for (int look = 0; look < kLooks && !done; ++look) {
    newest = Newest();
    const auto names = ListBackground(layer_folder);
    if (names.ok()) {
      done = ReadFirstGood(layer_folder, *names, config, layer, &newest);
      continue;
    }
    // Without a folder this layer has not been saved yet.
    if (!absl::IsNotFound(names.status())) {
      newest.skipped.emplace_back(names.status().message());
    }
    done = true;
  }
  return newest;
}

}  // namespace kronserve::checkpoint
