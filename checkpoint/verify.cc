#include "checkpoint/verify.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/background_files.h"
#include "checkpoint/folder.h"
#include "checkpoint/job_files.h"
#include "checkpoint/layer_file.h"
#include "checkpoint/names.h"
#include "checkpoint/trainer_file.h"
#include "common/status_macros.h"

namespace kronserve::checkpoint {
namespace {

// One set of files that is to be read.
struct Found {
  VerifiedSet set;
  std::string folder;
};

// Splits the last component off; "." for a path of one component.
std::pair<std::string, std::string> Split(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

// Nothing when the folder is not there: a server may remove one while it is
// being read.
absl::StatusOr<std::vector<std::string>> ListIfThere(
    const std::string& folder) {
  auto names = ListFolder(folder);
  if (absl::IsNotFound(names.status())) return std::vector<std::string>();
  return names;
}

std::string Join(const std::string& folder, const std::string& name) {
  return absl::StrCat(folder, "/", name);
}

bool IsJob(const std::string& path) {
  return IsFolder(Join(path, kBackgroundName)) ||
         IsFolder(Join(path, kCheckpointsName));
}

absl::Status AddSets(const std::string& job_folder, bool background,
                     std::vector<Found>* found) {
  const std::string folder =
      Join(job_folder, background ? kBackgroundName : kCheckpointsName);
  KRONSERVE_ASSIGN_OR_RETURN(const auto names, ListIfThere(folder));
  for (const std::string& name : names) {
    if (!IsFolder(Join(folder, name))) continue;
    VerifiedSet set;
    set.job = Split(job_folder).second;
    set.name = name;
    set.background = background;
    found->push_back({std::move(set), Join(folder, name)});
  }
  return absl::OkStatus();
}

absl::Status AddJob(const std::string& folder, std::vector<Found>* found) {
  KRONSERVE_RETURN_IF_ERROR(AddSets(folder, /*background=*/true, found));
  return AddSets(folder, /*background=*/false, found);
}

// The jobs in `path`; false when it is no checkpoint directory.
bool FindJobs(const std::string& path, std::vector<std::string>* jobs) {
  const auto names = ListFolder(path);
  if (!names.ok()) return false;
  for (const std::string& name : *names) {
    if (IsJob(Join(path, name))) jobs->push_back(name);
  }
  return !jobs->empty() || IsFolder(Join(path, kMarkersName));
}

// DIR/JOB/checkpoints/ID and DIR/JOB/ID name the same.
absl::Status AddCheckpoint(const std::string& path, std::vector<Found>* found) {
  const auto [folder, id] = Split(path);
  const bool direct = IsFolder(path);
  const std::string job_folder = direct ? Split(folder).first : folder;
  std::vector<Found> all;
  KRONSERVE_RETURN_IF_ERROR(AddSets(job_folder, /*background=*/false, &all));
  for (Found& one : all) {
    if (one.set.name == id) found->push_back(std::move(one));
  }
  if (!found->empty()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("there is neither a folder '", path,
                                          "' nor a checkpoint '", id,
                                          "' of a job '", job_folder, "'"));
}

absl::Status AddJobs(const std::string& path,
                     const std::vector<std::string>& jobs,
                     std::vector<Found>* found) {
  for (const std::string& job : jobs) {
    KRONSERVE_RETURN_IF_ERROR(AddJob(Join(path, job), found));
  }
  return absl::OkStatus();
}

// What a folder is shows in what is in it, and only then in its name: DIR
// itself may well be called "checkpoints".
absl::StatusOr<std::vector<Found>> FindSets(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  std::vector<Found> found;
  const auto [parent, name] = Split(path);
  const bool marked = IsFolder(Join(path, kMarkersName));
  std::vector<std::string> jobs;
  if (!marked && IsJob(path)) {
    KRONSERVE_RETURN_IF_ERROR(AddJob(path, &found));
  } else if (FindJobs(path, &jobs)) {
    KRONSERVE_RETURN_IF_ERROR(AddJobs(path, jobs, &found));
  } else if (IsJob(parent) &&
             (name == kBackgroundName || name == kCheckpointsName)) {
    KRONSERVE_RETURN_IF_ERROR(AddJob(parent, &found));
  } else if (!IsFolder(path) || Split(parent).second == kCheckpointsName) {
    KRONSERVE_RETURN_IF_ERROR(AddCheckpoint(path, &found));
  } else {
    KRONSERVE_RETURN_IF_ERROR(ListFolder(path).status());
    return absl::FailedPreconditionError(
        absl::StrCat("'", path,
                     "' is not a checkpoint directory: it holds neither "
                     ".servers nor a job"));
  }
  return found;
}

bool IsRead(const std::string& name) {
  return IsLayerFileName(name) || name == kTrainerName;
}

// Bytes of all files that are read in a folder and the folders in it.
int64_t BytesBelow(const std::string& folder) {
  const auto names = ListFolder(folder);
  if (!names.ok()) return 0;
  int64_t bytes = 0;
  for (const std::string& name : *names) {
    const std::string path = Join(folder, name);
    if (IsFolder(path)) bytes += BytesBelow(path);
    if (IsRead(name)) bytes += FileBytes(path);
  }
  return bytes;
}

class Verifier {
 public:
  Verifier(const std::vector<Found>& sets, VerifyProgress progress)
      : progress_(std::move(progress)) {
    for (const Found& found : sets) total_ += BytesBelow(found.folder);
  }

  absl::Status Add(Found found) {
    set_ = std::move(found.set);
    absl::Status status =
        set_.background ? ReadRun(found.folder) : ReadCheckpoint(found.folder);
    report_.sets.push_back(set_);
    return status;
  }
  VerifyReport report() { return std::move(report_); }

 private:
  void Fault(const std::string& line) {
    report_.faults.push_back(line);
    set_.state = VerifiedSet::State::kDamaged;
  }

  void Done(const std::string& path) {
    const int64_t bytes = FileBytes(path);
    ++set_.files;
    set_.bytes += bytes;
    done_ += bytes;
    progress_(std::min(done_, total_), total_);
  }

  absl::Status ReadRun(const std::string& folder) {
    KRONSERVE_ASSIGN_OR_RETURN(const auto layers, ListIfThere(folder));
    for (const std::string& layer : layers) {
      if (!IsFolder(Join(folder, layer))) continue;
      KRONSERVE_RETURN_IF_ERROR(ReadLayerFolder(Join(folder, layer)));
    }
    return absl::OkStatus();
  }

  absl::Status ReadLayerFolder(const std::string& folder) {
    const auto names = ListBackground(folder);
    if (absl::IsNotFound(names.status())) return absl::OkStatus();
    KRONSERVE_RETURN_IF_ERROR(names.status());
    int good = 0;
    int bad = 0;
    for (const std::string& name : *names) {
      const absl::Status status = ReadBackground(folder, name);
      good += status.ok() ? 1 : 0;
      // Not found: a server wrote a newer one meanwhile.
      if (status.ok() || absl::IsNotFound(status)) continue;
      ++bad;
      Fault(std::string(status.message()));
    }
    if (good > 0) ++set_.layers;
    if (good == 0 && bad > 0) ++set_.layers_lost;
    return absl::OkStatus();
  }

  absl::Status ReadBackground(const std::string& folder,
                              const std::string& name) {
    const std::string path = Join(folder, name);
    const auto file =
        ReadLayerFile(path, [&name](const v1::LayerSnapshot& meta) {
          return CheckBackgroundName(meta, name);
        });
    if (!absl::IsNotFound(file.status())) Done(path);
    KRONSERVE_RETURN_IF_ERROR(file.status());
    set_.step = std::max(set_.step, file->layer.meta.closed_through());
    return absl::OkStatus();
  }

  absl::Status ReadCheckpoint(const std::string& folder) {
    const auto [parent, id] = Split(folder);
    const auto manifest = ReadManifestOf(parent, id);
    if (absl::IsNotFound(manifest.status())) {
      set_.state = VerifiedSet::State::kIncomplete;
      return CountFiles(folder);
    }
    if (!manifest.ok()) {
      Fault(std::string(manifest.status().message()));
      return CountFiles(folder);
    }
    set_.step = manifest->step();
    for (int layer = 0; layer < manifest->layers_size(); ++layer) {
      const auto state = ReadJobFile(folder, *manifest, layer);
      Done(Join(folder, manifest->files(layer).path()));
      ++(state.ok() ? set_.layers : set_.layers_lost);
      if (!state.ok()) Fault(std::string(state.status().message()));
    }
    ReadTrainer(Join(folder, kTrainerName));
    return absl::OkStatus();
  }

  // Only checkpoints that a trainer asked for have one.
  void ReadTrainer(const std::string& path) {
    const auto bytes = ReadTrainerBytes(path);
    if (absl::IsNotFound(bytes.status())) return;
    Done(path);
    if (!bytes.ok()) return Fault(std::string(bytes.status().message()));
    const absl::Status status = CheckTrainerBytes(*bytes).status();
    if (status.ok()) return;
    Fault(absl::StrCat("'", path, "': ", std::string(status.message())));
  }

  // Files that no manifest vouches for.
  absl::Status CountFiles(const std::string& folder) {
    KRONSERVE_ASSIGN_OR_RETURN(const auto names, ListIfThere(folder));
    for (const std::string& name : names) {
      if (IsRead(name)) Done(Join(folder, name));
    }
    return absl::OkStatus();
  }

  const VerifyProgress progress_;
  int64_t total_ = 0;
  int64_t done_ = 0;
  VerifiedSet set_;
  VerifyReport report_;
};

}  // namespace

absl::StatusOr<VerifyReport> Verify(const std::string& path,
                                    const VerifyProgress& progress) {
  KRONSERVE_ASSIGN_OR_RETURN(std::vector<Found> sets, FindSets(path));
  Verifier verifier(sets, progress);
  for (Found& found : sets) {
    KRONSERVE_RETURN_IF_ERROR(verifier.Add(std::move(found)));
  }
  return verifier.report();
}

}  // namespace kronserve::checkpoint
