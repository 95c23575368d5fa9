// A CheckpointStore in one directory that all servers share.
//
// Layer: checkpoint. May include proto/ and common/.
// Layout and format: docs/checkpoint_format.md.

#ifndef KRONSERVE_CHECKPOINT_FILE_STORE_H_
#define KRONSERVE_CHECKPOINT_FILE_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "checkpoint/store.h"

namespace kronserve::checkpoint {

class WriteCalls;

struct FileStoreOptions {
  // --checkpoint-dir; its parent exists.
  std::string directory;
  // Of this process.
  std::string server;
  uint64_t incarnation = 0;
  // Background files kept per layer; at least 1.
  int keep = 2;
  // Half-written files of other servers are removed when they are older.
  absl::Duration temporary_age = absl::Hours(1);
  // Wall time, compared with the times of files.
  std::function<absl::Time()> now = absl::Now;
  // Null: the system's. Outlives the store; tests make writes fail with it.
  WriteCalls* calls = nullptr;
};

// Makes the directory if need be and writes this server's marker.
//
// Errors:
//   kInvalidArgument     an option is empty or out of range.
//   kNotFound            the directory's parent does not exist.
//   kPermissionDenied, kResourceExhausted, kDataLoss  the marker cannot be
//                        written; names the path.
absl::StatusOr<std::unique_ptr<CheckpointStore>> OpenFileStore(
    const FileStoreOptions& options);

}  // namespace kronserve::checkpoint

#endif  // KRONSERVE_CHECKPOINT_FILE_STORE_H_
