#include "worker/training/gzip_file.h"

#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"

namespace kronserve::worker {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

absl::Status FileError(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

}  // namespace

absl::StatusOr<std::string> ReadGzipFile(const std::string& path,
                                         int64_t max_bytes) {
  errno = 0;
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(
      gzopen(path.c_str(), "rb"), &gzclose);
  if (file == nullptr) {
    if (errno == ENOENT) {
      return absl::NotFoundError(absl::StrCat(path, ": no such file"));
    }
    return FileError(path, absl::StrCat("cannot open: ", std::strerror(errno)));
  }
  std::string content;
  std::vector<char> block(kReadBytes);
  while (true) {
    const int count = gzread(file.get(), block.data(), kReadBytes);
    int error = Z_OK;
    const char* message = gzerror(file.get(), &error);
    // A file that ends inside a gzip member shows Z_BUF_ERROR with the rest.
    if (count < 0 || (error != Z_OK && error != Z_STREAM_END)) {
      return FileError(path, absl::StrCat("damaged or cut short after ",
                                          content.size(), " bytes: ", message));
    }
    if (count == 0) return content;
    content.append(block.data(), count);
    if (static_cast<int64_t>(content.size()) > max_bytes) {
      return FileError(path, absl::StrCat("more than ", max_bytes, " bytes"));
    }
  }
}

}  // namespace kronserve::worker
