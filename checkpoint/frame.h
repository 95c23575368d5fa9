// What all files of checkpoints have in common: preamble, header, tensors, and
// a checksum of everything (docs/checkpoint_format.md).
//
// Layer: checkpoint. May include proto/ and common/.

#ifndef KRONSERVE_CHECKPOINT_FRAME_H_
#define KRONSERVE_CHECKPOINT_FRAME_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/durable_file.h"
#include "common/checksum.h"
#include "proto/tensor_chunks.h"

namespace kronserve::checkpoint {

enum class FrameKind { kLayer, kManifest };

inline constexpr uint32_t kFormatVersion = 1;
inline constexpr int64_t kPreambleBytes = 32;
inline constexpr int64_t kTrailerBytes = 8;
// A header above this is not believed; 10,000 layers take about 1 MiB.
inline constexpr uint64_t kMaxHeaderBytes = uint64_t{256} << 20;

// Size of a file and XXH3-64 of all its bytes.
struct FileSum {
  int64_t bytes = 0;
  uint64_t checksum = 0;
};

// Writes one file, durably.
//
// Errors: as DurableFile; kInvalidArgument when the header is too large.
absl::StatusOr<FileSum> WriteFrame(Writer* writer, const std::string& path,
                                   FrameKind kind, const std::string& header,
                                   const std::vector<Tensor>& tensors);

// Reads one file front to back.
//
// Thread safety: none.
class FrameReader {
 public:
  // Reads preamble and header. Allocates for the header only what the file
  // really holds.
  //
  // Errors, each with the path, the field and the numbers:
  //   kNotFound            no such file.
  //   kPermissionDenied    it may not be read.
  //   kFailedPrecondition  another format version or element type.
  //   kDataLoss            anything else: empty, truncated, other magic, a
  //                        length or checksum that is wrong, a failing disk.
  static absl::StatusOr<std::unique_ptr<FrameReader>> Open(
      const std::string& path, FrameKind kind);
  ~FrameReader();
  FrameReader(const FrameReader&) = delete;
  FrameReader& operator=(const FrameReader&) = delete;

  const std::string& header() const { return header_; }
  int64_t file_bytes() const { return file_bytes_; }
  // What stands between the header and the last checksum.
  int64_t tensor_bytes() const;

  // Reads the next `bytes` bytes. `field` is for messages.
  //
  // Errors:
  //   kDataLoss  the file ends before, or the disk fails.
  absl::Status Read(void* data, int64_t bytes, const std::string& field);

  // Checks the last checksum, after all tensors were read.
  //
  // Errors:
  //   kDataLoss  it is wrong, or the file goes on behind it.
  absl::StatusOr<FileSum> Finish();

  // kDataLoss that names the file.
  absl::Status Fault(const std::string& what) const;

 private:
  FrameReader(std::string path, int fd, int64_t file_bytes);
  absl::Status ReadPreamble(FrameKind kind, uint64_t* header_bytes,
                            uint64_t* header_checksum);
  absl::Status ReadHeader(uint64_t bytes, uint64_t checksum);

  const std::string path_;
  const int fd_;
  const int64_t file_bytes_;
  int64_t read_ = 0;
  ChecksumStream sum_;
  std::string header_;
};

}  // namespace kronserve::checkpoint

#endif  // KRONSERVE_CHECKPOINT_FRAME_H_
