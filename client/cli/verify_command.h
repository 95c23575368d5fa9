// `kronctl verify`: reads a checkpoint directory and prints what is good.
//
// Layer: client. May include checkpoint/, common/ and proto/.

#ifndef KRONSERVE_CLIENT_CLI_VERIFY_COMMAND_H_
#define KRONSERVE_CLIENT_CLI_VERIFY_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "checkpoint/verify.h"
#include "common/options.h"

namespace kronserve::client {

struct VerifyOptions {
  std::string path;  // DIR, DIR/JOB or DIR/JOB/ID.
  bool json = false;
};

// Declares the flags of the command. `options` outlives `set`.
void AddVerifyOptions(OptionSet* set, VerifyOptions* options);

// `words` of the command line, with --path= before the one that stands alone;
// not before what follows an option that takes a value.
std::vector<std::string> NamePath(std::vector<std::string> words);

// False when anything is damaged, or when all there is was never completed.
bool IsUsable(const checkpoint::VerifyReport& report);

// A table with one line per job checkpoint and per run with background files,
// then one line per fault, then one that sums up.
std::string RenderVerifyText(const checkpoint::VerifyReport& report,
                             const std::string& path, bool colors);

// One JSON object with the same content: `path`, `damaged`, `checkpoints`
// and `faults`; a step that is not known is -1.
std::string RenderVerifyJson(const checkpoint::VerifyReport& report,
                             const std::string& path);

// "[#####     ]  50 %  1.0 GiB of 2.0 GiB, 3 s left" for a terminal.
std::string ProgressLine(int64_t done, int64_t total, absl::Duration elapsed);

// Reads everything, and draws its progress on stderr when that is a terminal.
//
// Errors: as checkpoint::Verify().
absl::StatusOr<checkpoint::VerifyReport> RunVerify(
    const VerifyOptions& options);

}  // namespace kronserve::client

#endif  // KRONSERVE_CLIENT_CLI_VERIFY_COMMAND_H_
