// SIGTERM and SIGINT as something a main function waits for.
//
// Layer: common. May include common/ only.

#ifndef KRONSERVE_COMMON_SHUTDOWN_SIGNAL_H_
#define KRONSERVE_COMMON_SHUTDOWN_SIGNAL_H_

#include "absl/time/time.h"

namespace kronserve {

// Blocks SIGTERM and SIGINT for the calling thread and every thread it starts
// later, and ignores SIGPIPE. Call first thing in main(), before any thread.
void BlockShutdownSignals();

// Waits up to `timeout` for one of the blocked signals. Returns its number, or
// 0 on time-out.
int WaitForShutdownSignal(absl::Duration timeout);

}  // namespace kronserve

#endif  // KRONSERVE_COMMON_SHUTDOWN_SIGNAL_H_
