#include "checkpoint/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/folder.h"
#include "checkpoint/names.h"
#include "common/status_macros.h"

namespace kronserve::checkpoint {
namespace {

// One call of write() takes less than 2 GiB.
constexpr int64_t kMaxWrite = int64_t{1} << 30;

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// ".tmp-SERVER-": what all temporaries of a server begin with. The rest, 16
// hexadecimal digits, '-' and a count, holds no second way to read it.
std::string PrefixOf(const Writer& writer) {
  return absl::StrCat(kTemporaryPrefix, writer.server, "-");
}

std::string OwnPrefix(const Writer& writer) {
  return absl::StrFormat("%s%016x-", PrefixOf(writer), writer.incarnation);
}

bool IsOfServer(const Writer& writer, const std::string& name) {
  const std::string prefix = PrefixOf(writer);
  if (!absl::StartsWith(name, prefix)) return false;
  const std::string rest = name.substr(prefix.size());
  return rest.size() > 17 && rest[16] == '-' &&
         rest.find_first_not_of("0123456789abcdef") == 16 &&
         rest.find('-', 17) == std::string::npos;
}

bool IsOlder(const std::string& path, absl::Time now, absl::Duration age) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 &&
         absl::TimeFromTimespec(info.st_mtim) + age < now;
}

}  // namespace

int WriteCalls::Create(const std::string& path) {
  return open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
}

ssize_t WriteCalls::Write(int fd, const void* data, size_t bytes) {
  return write(fd, data, bytes);
}

int WriteCalls::Sync(int fd) { return fsync(fd); }

int WriteCalls::Rename(const std::string& from, const std::string& to) {
  return rename(from.c_str(), to.c_str());
}

absl::Status WriteFault(int error_number, const std::string& action) {
  const std::string message =
      absl::StrCat("cannot ", action, ": ", std::strerror(error_number));
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::ResourceExhaustedError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    default:
      return absl::DataLossError(message);
  }
}

absl::Status ReadFault(int error_number, const std::string& action) {
  if (error_number != ENOENT && error_number != ENOTDIR) {
    return WriteFault(error_number, action);
  }
  return absl::NotFoundError(
      absl::StrCat("cannot ", action, ": ", std::strerror(error_number)));
}

DurableFile::DurableFile(Writer* writer, std::string path, int64_t bytes)
    : writer_(writer),
      path_(std::move(path)),
      temporary_(absl::StrCat(ParentOf(path_), "/", OwnPrefix(*writer),
                              writer->files.fetch_add(1))),
      bytes_(bytes) {}

DurableFile::~DurableFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

absl::Status DurableFile::Fault(const char* call) const {
  return WriteFault(errno, absl::StrCat(call, " '", path_, "' after ", written_,
                                        " of ", bytes_, " bytes"));
}

absl::Status DurableFile::Append(const void* data, int64_t bytes) {
  if (fd_ < 0) {
    fd_ = writer_->calls->Create(temporary_);
    if (fd_ < 0) return Fault("create");
  }
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t taken =
        writer_->calls->Write(fd_, next, std::min(bytes, kMaxWrite));
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0) return Fault("write");
    next += taken;
    bytes -= taken;
    written_ += taken;
  }
  return absl::OkStatus();
}

absl::Status DurableFile::Commit() {
  if (writer_->calls->Sync(fd_) != 0) return Fault("sync");
  if (writer_->calls->Rename(temporary_, path_) != 0) return Fault("rename");
  const int fd = std::exchange(fd_, -1);
  // On a network file system the last error of a write may come here.
  if (close(fd) != 0) return Fault("close");
  return SyncFolder(writer_->calls, ParentOf(path_));
}

absl::Status SyncFolder(WriteCalls* calls, const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return WriteFault(errno, absl::StrCat("open '", path, "'"));
  const int result = calls->Sync(fd);
  const int error_number = errno;
  close(fd);
  // EINVAL: this file system does not sync folders.
  if (result == 0 || error_number == EINVAL) return absl::OkStatus();
  return WriteFault(error_number, absl::StrCat("sync '", path, "'"));
}

absl::Status MakeFolders(Writer* writer, const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return absl::OkStatus();
  }
  const std::string parent = ParentOf(path);
  if (parent != path) KRONSERVE_RETURN_IF_ERROR(MakeFolders(writer, parent));
  // EEXIST: another server makes the same folder at the same time.
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) {
    return WriteFault(errno, absl::StrCat("make folder '", path, "'"));
  }
  return SyncFolder(writer->calls, parent);
}

void RemoveTemporaries(const Writer& writer, const std::string& folder,
                       absl::Time now, absl::Duration age) {
  const absl::StatusOr<std::vector<std::string>> names = ListFolder(folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!absl::StartsWith(name, kTemporaryPrefix)) continue;
    if (absl::StartsWith(name, OwnPrefix(writer))) continue;  // On its way.
    const std::string path = absl::StrCat(folder, "/", name);
    if (IsOfServer(writer, name) || IsOlder(path, now, age)) {
      unlink(path.c_str());
    }
  }
}

}  // namespace kronserve::checkpoint
