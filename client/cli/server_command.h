// `kronctl server`: asks one server itself, also while the scheduler is away.
//
// Layer: client. May include common/ and proto/.

#ifndef KRONSERVE_CLIENT_CLI_SERVER_COMMAND_H_
#define KRONSERVE_CLIENT_CLI_SERVER_COMMAND_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/options.h"
#include "kronserve/v1/preconditioner.pb.h"

namespace kronserve::client {

struct ServerCommandOptions {
  std::string address;  // host:port of the server.
  bool json = false;
  absl::Duration timeout = absl::Seconds(5);
};

// Declares the flags of the command. `options` outlives `set`.
void AddServerCommandOptions(OptionSet* set, ServerCommandOptions* options);

// Blocks up to `options.timeout`.
//
// Errors:
//   kUnavailable  nobody answers there in time; names the address.
//   others        what the server answered.
absl::StatusOr<v1::GetServerStatusResponse> FetchServerStatus(
    const ServerCommandOptions& options);

// Tables for people: the layers it holds, then every counter that is not 0.
std::string RenderServerText(const v1::GetServerStatusResponse& status,
                             bool colors);

// One JSON object with all counters, for programs. Enums and incarnations as
// in RenderJson() of status_view.h.
std::string RenderServerJson(const v1::GetServerStatusResponse& status);

}  // namespace kronserve::client

#endif  // KRONSERVE_CLIENT_CLI_SERVER_COMMAND_H_
