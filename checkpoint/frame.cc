#include "checkpoint/frame.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"

namespace kronserve::checkpoint {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "tensors are written as they lie in memory");

constexpr int64_t kMaxRead = int64_t{1} << 30;
// Where the fields of the preamble stand.
constexpr size_t kMagicBytes = 8;
constexpr size_t kVersionAt = 8;
constexpr size_t kElementTypeAt = 12;
constexpr size_t kHeaderBytesAt = 16;
constexpr size_t kHeaderChecksumAt = 24;

using Preamble = std::array<char, kPreambleBytes>;

const char* MagicOf(FrameKind kind) {
  return kind == FrameKind::kLayer ? "KRONLAYR" : "KRONMANI";
}

// 1 is float32; a manifest has no elements.
uint32_t ElementTypeOf(FrameKind kind) {
  return kind == FrameKind::kLayer ? 1 : 0;
}

template <typename T>
void Put(Preamble* preamble, size_t at, T value) {
  std::memcpy(preamble->data() + at, &value, sizeof(value));
}

template <typename T>
T Get(const Preamble& preamble, size_t at) {
  T value;
  std::memcpy(&value, preamble.data() + at, sizeof(value));
  return value;
}

Preamble MakePreamble(FrameKind kind, const std::string& header) {
  Preamble preamble;
  std::memcpy(preamble.data(), MagicOf(kind), kMagicBytes);
  Put(&preamble, kVersionAt, kFormatVersion);
  Put(&preamble, kElementTypeAt, ElementTypeOf(kind));
  Put(&preamble, kHeaderBytesAt, static_cast<uint64_t>(header.size()));
  Put(&preamble, kHeaderChecksumAt, Checksum(header.data(), header.size()));
  return preamble;
}

int64_t BytesOf(const Tensor& tensor) {
  return static_cast<int64_t>(tensor->size() * sizeof(float));
}

absl::Status AppendSummed(DurableFile* file, ChecksumStream* sum,
                          const void* data, int64_t bytes) {
  sum->Add(data, bytes);
  return file->Append(data, bytes);
}

}  // namespace

absl::StatusOr<FileSum> WriteFrame(Writer* writer, const std::string& path,
                                   FrameKind kind, const std::string& header,
                                   const std::vector<Tensor>& tensors) {
  const auto header_bytes = static_cast<int64_t>(header.size());
  if (header.size() > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("header of '", path, "' has ", header_bytes,
                     " bytes, at most ", kMaxHeaderBytes));
  }
  FileSum sum{kPreambleBytes + header_bytes + kTrailerBytes, 0};
  for (const Tensor& tensor : tensors) sum.bytes += BytesOf(tensor);

  DurableFile file(writer, path, sum.bytes);
  ChecksumStream stream;
  const Preamble preamble = MakePreamble(kind, header);
  KRONSERVE_RETURN_IF_ERROR(
      AppendSummed(&file, &stream, preamble.data(), kPreambleBytes));
  KRONSERVE_RETURN_IF_ERROR(
      AppendSummed(&file, &stream, header.data(), header_bytes));
  for (const Tensor& tensor : tensors) {
    KRONSERVE_RETURN_IF_ERROR(
        AppendSummed(&file, &stream, tensor->data(), BytesOf(tensor)));
  }
  const uint64_t trailer = stream.Value();
  KRONSERVE_RETURN_IF_ERROR(
      AppendSummed(&file, &stream, &trailer, kTrailerBytes));
  KRONSERVE_RETURN_IF_ERROR(file.Commit());
  sum.checksum = stream.Value();
  return sum;
}

FrameReader::FrameReader(std::string path, int fd, int64_t file_bytes)
    : path_(std::move(path)), fd_(fd), file_bytes_(file_bytes) {}

FrameReader::~FrameReader() { close(fd_); }

absl::Status FrameReader::Fault(const std::string& what) const {
  return absl::DataLossError(
      absl::StrCat("checkpoint file '", path_, "': ", what));
}

absl::StatusOr<std::unique_ptr<FrameReader>> FrameReader::Open(
    const std::string& path, FrameKind kind) {
  // Not blocking: what is not a file, such as a pipe, must not hold us up.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const std::string action = absl::StrCat("read checkpoint file '", path, "'");
  if (fd < 0) return ReadFault(errno, action);
  struct stat info;
  const bool known = fstat(fd, &info) == 0;
  const int error_number = errno;
  std::unique_ptr<FrameReader> reader(
      new FrameReader(path, fd, known ? info.st_size : 0));
  if (!known) return ReadFault(error_number, action);
  if (!S_ISREG(info.st_mode)) return reader->Fault("is not a regular file");

  uint64_t header_bytes = 0;
  uint64_t header_checksum = 0;
  KRONSERVE_RETURN_IF_ERROR(
      reader->ReadPreamble(kind, &header_bytes, &header_checksum));
  KRONSERVE_RETURN_IF_ERROR(reader->ReadHeader(header_bytes, header_checksum));
  return reader;
}

absl::Status FrameReader::ReadPreamble(FrameKind kind, uint64_t* header_bytes,
                                       uint64_t* header_checksum) {
  if (file_bytes_ == 0) return Fault("is empty");
  if (file_bytes_ < kPreambleBytes + kTrailerBytes) {
    return Fault(absl::StrCat("size: truncated to ", file_bytes_,
                              " bytes, the smallest file has ",
                              kPreambleBytes + kTrailerBytes));
  }
  Preamble preamble;
  KRONSERVE_RETURN_IF_ERROR(Read(preamble.data(), kPreambleBytes, "preamble"));
  if (std::memcmp(preamble.data(), MagicOf(kind), kMagicBytes) != 0) {
    return Fault(absl::StrCat("magic: does not begin with ", MagicOf(kind)));
  }
  const auto version = Get<uint32_t>(preamble, kVersionAt);
  if (version != kFormatVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint file '", path_, "': format version: ", version,
                     ", this program reads ", kFormatVersion));
  }
  const auto element_type = Get<uint32_t>(preamble, kElementTypeAt);
  if (element_type != ElementTypeOf(kind)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "checkpoint file '", path_, "': element type: ", element_type,
        ", this program reads ", ElementTypeOf(kind),
        kind == FrameKind::kLayer ? " (float32)" : " (none)"));
  }
  *header_bytes = Get<uint64_t>(preamble, kHeaderBytesAt);
  *header_checksum = Get<uint64_t>(preamble, kHeaderChecksumAt);
  return absl::OkStatus();
}

absl::Status FrameReader::ReadHeader(uint64_t bytes, uint64_t checksum) {
  const auto room =
      static_cast<uint64_t>(file_bytes_ - kPreambleBytes - kTrailerBytes);
  if (bytes > kMaxHeaderBytes || bytes > room) {
    return Fault(absl::StrCat("header length: ", bytes, " bytes, the file has ",
                              room, " for it, at most ", kMaxHeaderBytes));
  }
  header_.resize(bytes);
  KRONSERVE_RETURN_IF_ERROR(
      Read(header_.data(), static_cast<int64_t>(bytes), "header"));
  const uint64_t actual = Checksum(header_.data(), header_.size());
  if (actual == checksum) return absl::OkStatus();
  return Fault(absl::StrFormat("header checksum: stored %016x, computed %016x",
                               checksum, actual));
}

int64_t FrameReader::tensor_bytes() const {
  return file_bytes_ - kPreambleBytes - static_cast<int64_t>(header_.size()) -
         kTrailerBytes;
}

absl::Status FrameReader::Read(void* data, int64_t bytes,
                               const std::string& field) {
  char* next = static_cast<char*>(data);
  for (int64_t left = bytes; left > 0;) {
    const ssize_t got = read(fd_, next, std::min(left, kMaxRead));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return Fault(absl::StrCat(
          field, ": ", got < 0 ? std::strerror(errno) : "the file ends",
          " at byte ", read_ + bytes - left, ", ", left, " bytes are missing"));
    }
    next += got;
    left -= got;
  }
  sum_.Add(data, bytes);
  read_ += bytes;
  return absl::OkStatus();
}

absl::StatusOr<FileSum> FrameReader::Finish() {
  const uint64_t expected = sum_.Value();
  uint64_t trailer = 0;
  KRONSERVE_RETURN_IF_ERROR(Read(&trailer, kTrailerBytes, "last checksum"));
  if (trailer != expected) {
    return Fault(absl::StrFormat("last checksum: stored %016x, computed %016x",
                                 trailer, expected));
  }
  if (read_ != file_bytes_) {
    return Fault(absl::StrCat("size: ", file_bytes_, " bytes, ", read_,
                              " belong to it"));
  }
  return FileSum{read_, sum_.Value()};
}

}  // namespace kronserve::checkpoint
