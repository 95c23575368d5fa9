// Tells scripts the address of a process that listens on any free port.
//
// Layer: common. May include nothing else of this repository.

#ifndef KRONSERVE_COMMON_ADDRESS_FILE_H_
#define KRONSERVE_COMMON_ADDRESS_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace kronserve {

// Writes `address` and a newline to the file `path`; an empty path is no file.
// Written beside and renamed, so that a reader never sees half an address.
//
// Errors:
//   kFailedPrecondition  the file cannot be written; names it and the reason.
absl::Status WriteAddressFile(const std::string& path,
                              const std::string& address);

}  // namespace kronserve

#endif  // KRONSERVE_COMMON_ADDRESS_FILE_H_
