// `kronctl drain | pin | checkpoint | restore`: what people ask of a scheduler.
//
// Layer: client. May include common/ and proto/.

#ifndef KRONSERVE_CLIENT_CLI_CONTROL_COMMANDS_H_
#define KRONSERVE_CLIENT_CLI_CONTROL_COMMANDS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/options.h"

namespace kronserve::client {

struct ControlOptions {
  std::string scheduler = "127.0.0.1:7710";
  absl::Duration timeout = absl::Seconds(5);  // Of one call.
  // How long to wait until it is done; zero: only ask for it.
  absl::Duration wait;
  std::string server;
  std::string job;
  std::string layers;  // Names with commas; empty: all of the job.
  std::string id;
  int64_t step = -1;  // -1: as soon as possible.
  bool undo = false;
};

// Declare the flags of each command, and their relations. `options` outlives
// `set`.
void AddDrainOptions(OptionSet* set, ControlOptions* options);
void AddPinOptions(OptionSet* set, ControlOptions* options);
void AddCheckpointOptions(OptionSet* set, ControlOptions* options);
void AddRestoreOptions(OptionSet* set, ControlOptions* options);

// Each returns one line that says what is so now.
//
// Errors:
//   kUnavailable       nobody answers there within `timeout`; names the
//   address. kDeadlineExceeded  `wait` is over; says how far it is. It goes on.
//   others             what the scheduler answered (scheduler.proto).
absl::StatusOr<std::string> Drain(const ControlOptions& options);
absl::StatusOr<std::string> Pin(const ControlOptions& options);
absl::StatusOr<std::string> Checkpoint(const ControlOptions& options);
absl::StatusOr<std::string> Restore(const ControlOptions& options);

}  // namespace kronserve::client

#endif  // KRONSERVE_CLIENT_CLI_CONTROL_COMMANDS_H_
