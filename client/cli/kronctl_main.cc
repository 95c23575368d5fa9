// kronctl: shows people what a cluster is doing.
//
// Exit codes: 0 done, 1 the scheduler cannot be reached or refused, 2 wrong
// use.

#include <unistd.h>

#include <cstdio>
#include <string>

#include "client/cli/status_command.h"
#include "client/cli/status_view.h"
#include "common/options.h"

namespace {

constexpr char kUsage[] =
    "kronctl: shows what a Kronserve cluster is doing.\n"
    "\n"
    "Usage: kronctl COMMAND [--option=value ...]\n"
    "\n"
    "Commands:\n"
    "  status   servers, jobs, and which server owns which layer\n"
    "\n"
    "Example: kronctl status --scheduler=127.0.0.1:7710\n"
    "Exit status: 0 done, 1 the scheduler cannot be reached, 2 wrong use.\n"
    "\n"
    "Run 'kronctl COMMAND --help' for its options.\n";

int Status(int argc, char** argv) {
  kronserve::client::StatusOptions options;
  kronserve::OptionSet flags("kronctl status",
                             "Shows servers, jobs and owners of layers.");
  kronserve::client::AddStatusOptions(&flags, &options);
  int exit_code = 0;
  if (flags.ParseOrExit(argc, argv, &exit_code)) return exit_code;
  const auto status = kronserve::client::FetchStatus(options);
  if (!status.ok()) {
    std::fprintf(stderr, "kronctl: %s\n",
                 std::string(status.status().message()).c_str());
    return 1;
  }
  const std::string text =
      options.json ? kronserve::client::RenderJson(*status, options.scheduler)
                   : kronserve::client::RenderText(*status, options.scheduler,
                                                   isatty(STDOUT_FILENO) == 1);
  std::fputs(text.c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "status") return Status(argc - 1, argv + 1);
  if (command == "--help" || command == "help") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (command == "--version") {
    kronserve::OptionSet flags("kronctl", "");
    int exit_code = 0;
    flags.ParseOrExit(argc, argv, &exit_code);
    return exit_code;
  }
  std::fprintf(stderr, "kronctl: %s\n%s",
               command.empty() ? "a command is missing"
                               : ("unknown command '" + command + "'").c_str(),
               kUsage);
  return 2;
}
