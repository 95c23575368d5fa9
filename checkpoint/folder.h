// What stands in a folder.
//
// Layer: checkpoint. May include proto/ and common/.

#ifndef KRONSERVE_CHECKPOINT_FOLDER_H_
#define KRONSERVE_CHECKPOINT_FOLDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kronserve::checkpoint {

// Names in the folder, sorted, without "." and "..".
//
// Errors:
//   kNotFound          there is no such folder.
//   kPermissionDenied  this process may not read it.
//   kDataLoss          any other failure of the disk.
absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path);

// False also when it cannot be looked at. Links are followed.
bool IsFolder(const std::string& path);

// Size of a file; 0 when it is not there.
int64_t FileBytes(const std::string& path);

// Removes a folder and everything in it; links are removed, not followed. A
// folder that is not there is OK.
//
// Errors:
//   kPermissionDenied, kDataLoss  something could not be removed; what had not
//                                 been removed by then is still there.
absl::Status RemoveTree(const std::string& path);

}  // namespace kronserve::checkpoint

#endif  // KRONSERVE_CHECKPOINT_FOLDER_H_
