// A StateStore in one SQLite file, held by one scheduler at a time.

#ifndef KRONSERVE_SCHEDULER_SQLITE_FACTORY_H_
#define KRONSERVE_SCHEDULER_SQLITE_FACTORY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "scheduler/state_store.h"

namespace kronserve::scheduler::sqlite {

// Opens or creates `path` (its folder must exist) and locks it until the store
// is destroyed. Write-ahead log, synchronous = FULL: a write takes about a
// millisecond and survives a power cut.
//
// Errors:
//   kFailedPrecondition  another scheduler holds the file, the file cannot be
//                        opened, or it was written by a newer version; the
//                        message names the path.
//   kDataLoss            the file is not a SQLite database, or is damaged.
absl::StatusOr<std::unique_ptr<StateStore>> CreateStateStore(
    const std::string& path);

}  // namespace kronserve::scheduler::sqlite

#endif  // KRONSERVE_SCHEDULER_SQLITE_FACTORY_H_
