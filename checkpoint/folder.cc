#include "checkpoint/folder.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "checkpoint/durable_file.h"

namespace kronserve::checkpoint {

absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path) {
  DIR* const folder = opendir(path.c_str());
  const std::string action = absl::StrCat("list folder '", path, "'");
  if (folder == nullptr) return ReadFault(errno, action);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  const int error_number = errno;
  closedir(folder);
  if (error_number != 0) return ReadFault(error_number, action);
  std::sort(names.begin(), names.end());
  return names;
}

bool IsFolder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

int64_t FileBytes(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? info.st_size : 0;
}

absl::Status RemoveTree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (!error || error == std::errc::no_such_file_or_directory) {
    return absl::OkStatus();
  }
  return WriteFault(error.value(), absl::StrCat("remove '", path, "'"));
}

}  // namespace kronserve::checkpoint
