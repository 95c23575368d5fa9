// The commands of kronctl that change something: drain, pin, checkpoint,
// restore.
//
// Layer: client. May include common/ and proto/.

#ifndef KRONSERVE_CLIENT_CLI_CHANGE_COMMANDS_H_
#define KRONSERVE_CLIENT_CLI_CHANGE_COMMANDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/progress.h"
#include "client/scheduler_api.h"
#include "client/scheduler_client.h"
#include "common/options.h"

namespace kronserve::client {

// The words of all four commands; each declares those that it takes.
struct ChangeOptions {
  std::vector<std::string> names;  // Before the first option.
  std::string scheduler = "127.0.0.1:7710";
  absl::Duration timeout = absl::Seconds(5);        // Of one call.
  absl::Duration wait_timeout = absl::Minutes(10);  // With `wait`.
  bool undo = false;
  bool wait = false;
  bool all = false;
  std::string server;
  std::string id;
  int64_t step = -1;  // -1: as soon as possible.
};

// What a command speaks to; the streams are those of the process or a test's.
struct CommandContext {
  SchedulerApi* scheduler = nullptr;
  Timing timing;
  std::FILE* progress_out = stderr;
  bool terminal = false;
  absl::Time wall_time;  // For the id of a checkpoint that was given none.
};

// One command: how it is called, and what it does. Returns what it prints.
//
// Errors of run():
//   kInvalidArgument   names or options do not fit; how it is called.
//   kDeadlineExceeded  not done within wait_timeout; says how far it is.
//   others             what the scheduler answered; one line.
struct ChangeCommand {
  const char* name;
  const char* usage;  // Of --help.
  void (*add_options)(OptionSet* set, ChangeOptions* options);
  absl::StatusOr<std::string> (*run)(const ChangeOptions& options,
                                     const CommandContext& context);
};

// Null when `name` is none of them.
const ChangeCommand* FindChangeCommand(const std::string& name);

// Takes the words before the first option off `words`.
std::vector<std::string> TakeNames(std::vector<std::string>* words);

}  // namespace kronserve::client

#endif  // KRONSERVE_CLIENT_CLI_CHANGE_COMMANDS_H_
