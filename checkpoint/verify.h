// Reads everything in a checkpoint directory and says what is good.
//
// Layer: checkpoint. May include proto/ and common/.

#ifndef KRONSERVE_CHECKPOINT_VERIFY_H_
#define KRONSERVE_CHECKPOINT_VERIFY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace kronserve::checkpoint {

// The background files of one run, or one job checkpoint.
struct VerifiedSet {
  enum class State {
    kGood,
    kIncomplete,  // A job checkpoint without manifest: not read.
    kDamaged,     // A file or the manifest could not be used.
  };
  std::string job;   // As the folder is called.
  std::string name;  // The id, or the run.
  bool background = false;
  int64_t layers = 0;       // With at least one good file.
  int64_t layers_lost = 0;  // With none.
  int64_t step = -1;        // The cut; background: the newest closed step.
  int64_t files = 0;
  int64_t bytes = 0;
  State state = State::kGood;
};

struct VerifyReport {
  std::vector<VerifiedSet> sets;
  // One line per file that could not be used, with the reason.
  std::vector<std::string> faults;
};

// Called after each file with the bytes read so far and in all.
using VerifyProgress = std::function<void(int64_t done, int64_t total)>;

// Reads every file below `path`: DIR (--checkpoint-dir), DIR/JOB, or one
// checkpoint as DIR/JOB/ID or DIR/JOB/checkpoints/ID. Names are those of the
// folders. Files that servers remove or add meanwhile are left out.
//
// Errors:
//   kNotFound            there is no such folder or checkpoint.
//   kFailedPrecondition  it is no checkpoint directory.
//   kPermissionDenied, kDataLoss  a folder cannot be listed.
absl::StatusOr<VerifyReport> Verify(const std::string& path,
                                    const VerifyProgress& progress);

}  // namespace kronserve::checkpoint

#endif  // KRONSERVE_CHECKPOINT_VERIFY_H_
