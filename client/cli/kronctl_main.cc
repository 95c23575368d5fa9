// kronctl: shows people what a cluster is doing.
//
// Exit codes: 0 done, 1 nobody can be reached there, it refused, or something
// is damaged, 2 wrong use.

#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "client/cli/change_commands.h"
#include "client/cli/server_command.h"
#include "client/cli/status_command.h"
#include "client/cli/status_view.h"
#include "client/cli/verify_command.h"
#include "common/options.h"

namespace {

constexpr char kUsage[] =
    "kronctl: shows what a Kronserve cluster is doing, and changes it.\n"
    "\n"
    "Usage: kronctl COMMAND [NAME ...] [--option=value ...]\n"
    "\n"
    "Commands:\n"
    "  status      servers, jobs, and which server owns which layer\n"
    "  server      what one server holds and has counted, asked of it "
    "directly\n"
    "  drain       moves all layers away from a server before it is stopped\n"
    "  pin         ties layers to a server\n"
    "  checkpoint  saves the state of a job's layers, cut after one step\n"
    "  restore     lets the next world of a job start from a checkpoint\n"
    "  verify      reads checkpoints from disk and says which are damaged\n"
    "\n"
    "Example: kronctl status --scheduler=127.0.0.1:7710\n"
    "         kronctl drain s1 --wait\n"
    "         kronctl checkpoint mnist --id=before-lr-drop --wait\n"
    "         kronctl verify /data/checkpoints\n"
    "Exit status: 0 done, 1 nobody can be reached there or something is\n"
    "damaged, 2 wrong use.\n"
    "\n"
    "Run 'kronctl COMMAND --help' for its options.\n";

// Prints `text`, or why there is none; returns the exit code.
int Print(const absl::StatusOr<std::string>& text) {
  if (!text.ok()) {
    std::fprintf(stderr, "kronctl: %s\n",
                 std::string(text.status().message()).c_str());
    return 1;
  }
  std::fputs(text->c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

int Server(int argc, char** argv) {
  kronserve::client::ServerCommandOptions options;
  kronserve::OptionSet flags("kronctl server",
                             "Shows what one server holds and has counted.");
  kronserve::client::AddServerCommandOptions(&flags, &options);
  int exit_code = 0;
  if (flags.ParseOrExit(argc, argv, &exit_code)) return exit_code;
  const auto status = kronserve::client::FetchServerStatus(options);
  if (!status.ok()) return Print(status.status());
  return Print(options.json ? kronserve::client::RenderServerJson(*status)
                            : kronserve::client::RenderServerText(
                                  *status, isatty(STDOUT_FILENO) == 1));
}

int Status(int argc, char** argv) {
  kronserve::client::StatusOptions options;
  kronserve::OptionSet flags("kronctl status",
                             "Shows servers, jobs and owners of layers.");
  kronserve::client::AddStatusOptions(&flags, &options);
  int exit_code = 0;
  if (flags.ParseOrExit(argc, argv, &exit_code)) return exit_code;
  const auto status = kronserve::client::FetchStatus(options);
  if (!status.ok()) return Print(status.status());
  return Print(options.json
                   ? kronserve::client::RenderJson(*status, options.scheduler)
                   : kronserve::client::RenderText(*status, options.scheduler,
                                                   isatty(STDOUT_FILENO) == 1));
}

int Verify(int argc, char** argv) {
  kronserve::client::VerifyOptions options;
  kronserve::OptionSet flags(
      "kronctl verify",
      "Reads every checkpoint in a directory, in the way in which a server "
      "would, and says which cannot be used and why. Changes nothing, needs "
      "no running cluster, and may run beside one. Exit status 1 when a file "
      "is damaged, or when all there is was never completed. Example: kronctl "
      "verify /data/checkpoints/mnist/before-lr-drop");
  kronserve::client::AddVerifyOptions(&flags, &options);
  std::vector<std::string> words =
      kronserve::client::NamePath({argv + 1, argv + argc});
  std::vector<char*> pointers = {argv[0]};
  for (std::string& word : words) pointers.push_back(word.data());
  int exit_code = 0;
  if (flags.ParseOrExit(argc, pointers.data(), &exit_code)) return exit_code;
  const auto report = kronserve::client::RunVerify(options);
  if (!report.ok()) return Print(report.status());
  const int printed = Print(
      options.json ? kronserve::client::RenderVerifyJson(*report, options.path)
                   : kronserve::client::RenderVerifyText(
                         *report, options.path, isatty(STDOUT_FILENO) == 1));
  return kronserve::client::IsUsable(*report) ? printed : 1;
}

// A command that changes something: names, then options.
int Change(const kronserve::client::ChangeCommand& command, int argc,
           char** argv) {
  kronserve::client::ChangeOptions options;
  kronserve::OptionSet flags(std::string("kronctl ") + command.name,
                             command.usage);
  command.add_options(&flags, &options);
  std::vector<std::string> words(argv + 1, argv + argc);
  options.names = kronserve::client::TakeNames(&words);
  std::vector<char*> pointers = {argv[0]};
  for (std::string& word : words) pointers.push_back(word.data());
  int exit_code = 0;
  if (flags.ParseOrExit(static_cast<int>(pointers.size()), pointers.data(),
                        &exit_code)) {
    return exit_code;
  }
  const auto scheduler =
      kronserve::client::CreateGrpcSchedulerApi(options.scheduler);
  kronserve::client::CommandContext context;
  context.scheduler = scheduler.get();
  context.terminal = isatty(STDERR_FILENO) == 1;
  context.wall_time = absl::Now();
  const auto text = command.run(options, context);
  if (text.ok()) return Print(text);
  Print(kronserve::client::WithHint(text.status(), options.scheduler,
                                    options.timeout));
  return absl::IsInvalidArgument(text.status()) ? 2 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "status") return Status(argc - 1, argv + 1);
  if (command == "server") return Server(argc - 1, argv + 1);
  if (command == "verify") return Verify(argc - 1, argv + 1);
  if (const auto* change = kronserve::client::FindChangeCommand(command)) {
    return Change(*change, argc - 1, argv + 1);
  }
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
