// kronserve-worker: one rank of a native, data-parallel training run.

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/options.h"
#include "common/shutdown_signal.h"
#include "worker/stop_watcher.h"
#include "worker/training/reporter.h"
#include "worker/worker_options.h"
#include "worker/worker_run.h"

namespace {

using kronserve::worker::TrainingSummary;

int Fail(const std::string& message) {
  std::fprintf(stderr, "kronserve-worker: %s\n", message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  kronserve::BlockShutdownSignals();
  kronserve::worker::WorkerOptions options;
  kronserve::worker::ReadEnvironment(
      [](const char* name) -> const char* { return std::getenv(name); },
      &options);
  kronserve::OptionSet flags(
      "kronserve-worker",
      "Trains a network, one process per rank, with SGD, Adam or K-FAC through "
      "the service.");
  kronserve::worker::AddWorkerOptions(&flags, &options);
  int exit_code = 0;
  if (flags.ParseOrExit(argc, argv, &exit_code)) return exit_code;
  kronserve::SetLogPrefix(
      absl::StrCat("worker/", options.job, "/", options.rank));

  kronserve::worker::StopWatcher stop_watcher;
  const auto summary = kronserve::worker::RunWorker(options, &stop_watcher);
  if (!summary.ok()) return Fail(std::string(summary.status().message()));
  if (options.rank == 0) {
    std::printf("%s\n", kronserve::worker::SummaryLine(*summary).c_str());
  }
  if (summary->end == TrainingSummary::End::kStopped) {
    std::printf("stopped by a signal after step %lld\n",
                static_cast<long long>(summary->steps));
  }
  if (summary->end == TrainingSummary::End::kDiverged) {
    return Fail(absl::StrCat("the loss is not finite after ", summary->steps,
                             " steps: lower --lr or raise --damping"));
  }
  return 0;
}
