#include "common/address_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace kronserve {

absl::Status WriteAddressFile(const std::string& path,
                              const std::string& address) {
  if (path.empty()) return absl::OkStatus();
  const std::string beside = path + ".new";
  std::FILE* const file = std::fopen(beside.c_str(), "w");
  bool written = file != nullptr;
  if (written) {
    written = std::fprintf(file, "%s\n", address.c_str()) > 0;
    written = std::fclose(file) == 0 && written;
  }
  if (written && std::rename(beside.c_str(), path.c_str()) == 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "cannot write the address file ", path, ": ", std::strerror(errno)));
}

}  // namespace kronserve
