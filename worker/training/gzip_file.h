// Whole gzip files in memory, with a limit.
//
// Layer: worker. May include common/.

#ifndef KRONSERVE_WORKER_TRAINING_GZIP_FILE_H_
#define KRONSERVE_WORKER_TRAINING_GZIP_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace kronserve::worker {

// Reads and unpacks the file at `path`; a file that is not gzip is taken as it
// is.
//
// Errors:
//   kNotFound         there is no such file.
//   kInvalidArgument  it cannot be read, is damaged or cut short, or unpacks
//                     to more than `max_bytes`. Messages name the file.
absl::StatusOr<std::string> ReadGzipFile(const std::string& path,
                                         int64_t max_bytes);

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_TRAINING_GZIP_FILE_H_
