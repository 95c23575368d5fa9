#include "checkpoint/trainer_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/folder.h"
#include "common/checksum.h"

namespace kronserve::checkpoint {
namespace {

constexpr size_t kMaxRead = size_t{1} << 30;

// Divides, so that no number of a header can overflow.
bool HasSizeOf(const TrainerHeader& header, size_t content_bytes) {
  if (header.parameters < 0 || header.slots < 0 || header.floats < 0) {
    return false;
  }
  int64_t copies = 1;  // The parameters, then the slots of each.
  if (header.slots > 0) {
    if (header.parameters == 0 || header.slots % header.parameters != 0) {
      return false;
    }
    copies += header.slots / header.parameters;
  }
  const auto floats = static_cast<int64_t>(content_bytes / sizeof(float));
  return content_bytes % sizeof(float) == 0 && floats % copies == 0 &&
         floats / copies == header.floats;
}

}  // namespace

absl::StatusOr<TrainerHeader> CheckTrainerBytes(const std::string& bytes) {
  TrainerHeader header;
  uint64_t checksum = 0;
  if (bytes.size() < sizeof(header) + sizeof(checksum)) {
    return absl::DataLossError(
        absl::StrCat("training state has ", bytes.size(), " bytes: cut off"));
  }
  const size_t summed = bytes.size() - sizeof(checksum);
  std::memcpy(&header, bytes.data(), sizeof(header));
  std::memcpy(&checksum, bytes.data() + summed, sizeof(checksum));
  if (header.magic != TrainerHeader().magic) {
    return absl::DataLossError(
        "training state is of another format version, or none");
  }
  if (Checksum(bytes.data(), summed) != checksum) {
    return absl::DataLossError(absl::StrCat("training state of ", bytes.size(),
                                            " bytes is damaged: its checksum "
                                            "does not fit"));
  }
  if (HasSizeOf(header, summed - sizeof(header))) return header;
  return absl::DataLossError(absl::StrCat(
      "training state of ", bytes.size(),
      " bytes contradicts its header: ", header.parameters, " matrices of ",
      header.floats, " numbers with ", header.slots, " optimizer slots"));
}

absl::StatusOr<std::string> ReadTrainerBytes(const std::string& path) {
  const std::string action = absl::StrCat("read '", path, "'");
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ReadFault(errno, action);
  std::string bytes(FileBytes(path), '\0');
  size_t at = 0;
  ssize_t got = 1;
  while (at < bytes.size() && got != 0) {
    got = read(fd, bytes.data() + at, std::min(bytes.size() - at, kMaxRead));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    at += got;
  }
  const int error_number = errno;
  close(fd);
  if (got < 0) return ReadFault(error_number, action);
  bytes.resize(at);
  return bytes;
}

}  // namespace kronserve::checkpoint
