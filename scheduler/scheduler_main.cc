// kronserve-scheduler: decides who owns what, and keeps that true.

#include <cstdio>
#include <memory>
#include <utility>

#include "common/clock.h"
#include "common/log.h"
#include "common/options.h"
#include "common/shutdown_signal.h"
#include "common/status_macros.h"
#include "scheduler/etcd/factory.h"
#include "scheduler/memory/factory.h"
#include "scheduler/scheduler_options.h"
#include "scheduler/scheduler_process.h"
#include "scheduler/sqlite/factory.h"

namespace {

using kronserve::scheduler::SchedulerOptions;
using kronserve::scheduler::SchedulerProcess;
using kronserve::scheduler::StateStore;

constexpr absl::Duration kGrace = absl::Seconds(2);

absl::StatusOr<std::unique_ptr<SchedulerProcess>> Start(
    const SchedulerOptions& options) {
  namespace scheduler = kronserve::scheduler;
  KRONSERVE_ASSIGN_OR_RETURN(const scheduler::StoreChoice choice,
                             scheduler::ParseStore(options.store));
  if (choice.kind == scheduler::StoreChoice::Kind::kEtcd) {
    return SchedulerProcess::Start(
        options, scheduler::etcd::CreateElection(
                     {choice.where, options.etcd_prefix, options.lease},
                     &kronserve::SteadyClock()));
  }
  std::unique_ptr<StateStore> store;
  if (choice.kind == scheduler::StoreChoice::Kind::kSqlite) {
    KRONSERVE_ASSIGN_OR_RETURN(
        store, scheduler::sqlite::CreateStateStore(choice.where));
  } else {
    store = scheduler::memory::CreateStateStore();
  }
  return SchedulerProcess::Start(options, std::move(store));
}

}  // namespace

int main(int argc, char** argv) {
  kronserve::BlockShutdownSignals();
  SchedulerOptions options;
  kronserve::OptionSet flags("kronserve-scheduler",
                             "Knows the servers, places the layers of every "
                             "job on them, and re-places what is lost.");
  kronserve::scheduler::AddSchedulerOptions(&flags, &options);
  int exit_code = 0;
  if (flags.ParseOrExit(argc, argv, &exit_code)) return exit_code;
  kronserve::SetLogPrefix("scheduler");

  auto scheduler = Start(options);
  if (!scheduler.ok()) {
    std::fprintf(stderr, "kronserve-scheduler: %s\n",
                 std::string(scheduler.status().message()).c_str());
    return 1;
  }
  std::printf("listening on %s\n", (*scheduler)->address().c_str());
  std::fflush(stdout);
  while (kronserve::WaitForShutdownSignal(absl::Hours(1)) == 0) {
  }
  kronserve::Log(kronserve::LogLevel::kInfo, "shutting down");
  (*scheduler)->Shutdown(kGrace);
  return 0;
}
