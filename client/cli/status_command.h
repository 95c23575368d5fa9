// `kronctl status`: asks the scheduler and prints the answer.
//
// Layer: client. May include common/ and proto/.

#ifndef KRONSERVE_CLIENT_CLI_STATUS_COMMAND_H_
#define KRONSERVE_CLIENT_CLI_STATUS_COMMAND_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/options.h"
#include "kronserve/v1/scheduler.pb.h"

namespace kronserve::client {

struct StatusOptions {
  std::string scheduler = "127.0.0.1:7710";
  bool json = false;
  absl::Duration timeout = absl::Seconds(5);
};

// Declares the flags of the command. `options` outlives `set`.
void AddStatusOptions(OptionSet* set, StatusOptions* options);

// Blocks up to `options.timeout`.
//
// Errors:
//   kUnavailable  nobody answers there; one line that says what to check.
//   others        what the scheduler answered.
absl::StatusOr<v1::GetStatusResponse> FetchStatus(const StatusOptions& options);

// kUnavailable in one line that says what to check; others as they are.
absl::Status WithHint(const absl::Status& status, const std::string& scheduler,
                      absl::Duration timeout);

}  // namespace kronserve::client

#endif  // KRONSERVE_CLIENT_CLI_STATUS_COMMAND_H_
