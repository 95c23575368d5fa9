// Files that appear whole or not at all, also when the machine stops.
//
// Layer: checkpoint. May include proto/ and common/.

#ifndef KRONSERVE_CHECKPOINT_DURABLE_FILE_H_
#define KRONSERVE_CHECKPOINT_DURABLE_FILE_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace kronserve::checkpoint {

// The calls of the system that writing takes, so that a test can make each of
// them fail. Results and errno as the calls of the same name.
//
// Thread safety: thread-safe.
class WriteCalls {
 public:
  virtual ~WriteCalls() = default;
  // Creates `path`, which does not exist, for writing.
  virtual int Create(const std::string& path);
  virtual ssize_t Write(int fd, const void* data, size_t bytes);
  virtual int Sync(int fd);
  virtual int Rename(const std::string& from, const std::string& to);
};

// Who writes: how its half-written files are called.
struct Writer {
  WriteCalls* calls = nullptr;
  std::string server;  // As in the marker; escaped.
  uint64_t incarnation = 0;
  std::atomic<uint64_t> files{0};
};

// One file on its way: written under a name that begins with ".tmp-" and
// renamed when it is whole. A file that was not committed is removed.
//
//   DurableFile file(&writer, path, bytes);
//   RETURN_IF_ERROR(file.Append(...)); RETURN_IF_ERROR(file.Commit());
//
// Thread safety: none.
// Lifetime:      the writer outlives it.
class DurableFile {
 public:
  // `bytes`: how many there will be; only for messages.
  DurableFile(Writer* writer, std::string path, int64_t bytes);
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  // Errors of both:
  //   kResourceExhausted, kPermissionDenied, kDataLoss  as CheckpointStore;
  //   the message names the path, the bytes written and the bytes in all.
  absl::Status Append(const void* data, int64_t bytes);
  // Syncs the file, renames it over `path`, syncs the folder.
  absl::Status Commit();

 private:
  absl::Status Fault(const char* call) const;

  Writer* writer_;
  const std::string path_;
  const std::string temporary_;
  const int64_t bytes_;
  int64_t written_ = 0;
  int fd_ = -1;  // Negative before the first byte and after Commit().
};

// Makes `path` and the folders above it that are missing, each synced into its
// parent; a root that must exist is the caller's to check.
absl::Status MakeFolders(Writer* writer, const std::string& path);

// Makes what was removed from or added to a folder last.
absl::Status SyncFolder(WriteCalls* calls, const std::string& path);

// Removes half-written files in `folder`: those of earlier processes of this
// server, and those of others that are older than `age` at `now`.
void RemoveTemporaries(const Writer& writer, const std::string& folder,
                       absl::Time now, absl::Duration age);

// What a failed call of the system is called: `action` names path and bytes.
absl::Status WriteFault(int error_number, const std::string& action);
absl::Status ReadFault(int error_number, const std::string& action);

}  // namespace kronserve::checkpoint

#endif  // KRONSERVE_CHECKPOINT_DURABLE_FILE_H_
