// kronserve-server: owns layers and preconditions.

#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/options.h"
#include "common/shutdown_signal.h"
#include "server/server_options.h"
#include "server/server_process.h"

namespace {

constexpr absl::Duration kGrace = absl::Seconds(2);
constexpr absl::Duration kLook = absl::Milliseconds(50);

// Waits until the layers have moved away, the grace is over or a second signal
// comes; saves what is left.
void Leave(kronserve::server::ServerProcess& server, absl::Duration grace) {
  const absl::Time end = kronserve::SteadyClock().Now() + grace;
  server.BeginDrain();
  while (!server.IsDrained() && kronserve::SteadyClock().Now() < end) {
    if (kronserve::WaitForShutdownSignal(kLook) != 0) break;
  }
  server.SaveLayers();
}

}  // namespace

int main(int argc, char** argv) {
  kronserve::BlockShutdownSignals();
  kronserve::server::ServerOptions options;
  kronserve::OptionSet flags("kronserve-server",
                             "Owns layers: averages and inverts their factors "
                             "and preconditions gradients.");
  kronserve::server::AddServerOptions(&flags, &options);
  int exit_code = 0;
  if (flags.ParseOrExit(argc, argv, &exit_code)) return exit_code;
  kronserve::SetLogPrefix(absl::StrCat("server/", options.name));

  auto server = kronserve::server::ServerProcess::Start(options);
  if (!server.ok()) {
    std::fprintf(stderr, "kronserve-server: %s\n",
                 std::string(server.status().message()).c_str());
    return 1;
  }
  std::printf("listening on %s\n", (*server)->address().c_str());
  std::fflush(stdout);
  while (kronserve::WaitForShutdownSignal(absl::Hours(1)) == 0) {
  }
  kronserve::Log(kronserve::LogLevel::kInfo, "shutting down");
  Leave(**server, options.drain_grace);
  (*server)->Shutdown(kGrace);
  return 0;
}
