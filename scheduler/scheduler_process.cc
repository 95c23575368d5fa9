#include "scheduler/scheduler_process.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/address_file.h"
#include "common/clock.h"
#include "common/grpc_server.h"
#include "common/incarnation.h"
#include "common/status_macros.h"
#include "scheduler/active_runtime.h"
#include "scheduler/candidate.h"
#include "scheduler/scheduler_runtime.h"
#include "scheduler/scheduler_service.h"
#include "scheduler/server_link.h"

namespace kronserve::scheduler {
namespace {

// Often enough that a lease survives a lost renewal or two.
constexpr absl::Duration kLongestInterval = absl::Seconds(1);

CoreOptions CoreOptionsOf(const SchedulerOptions& options,
                          uint64_t incarnation) {
  CoreOptions core;
  core.lease.heartbeat = options.heartbeat;
  core.lease.lease = options.lease;
  core.job_ttl = options.job_ttl;
  core.incarnation = incarnation;
  return core;
}

v1::GetStatusResponse Self(uint64_t incarnation, const std::string& store) {
  v1::GetStatusResponse self;
  self.set_incarnation(incarnation);
  self.set_store(store);
  return self;
}

class SchedulerProcessImpl final : public SchedulerProcess {
 public:
  SchedulerProcessImpl(const SchedulerOptions& options, uint64_t incarnation,
                       const std::string& store)
      : options_(options),
        core_options_(CoreOptionsOf(options, incarnation)),
        active_(&SteadyClock()),
        service_(&active_, Self(incarnation, store)) {}

  ~SchedulerProcessImpl() override { Kill(); }

  absl::Status LeadAlone(std::unique_ptr<StateStore> store) {
    KRONSERVE_ASSIGN_OR_RETURN(runtime_, CreateRuntime(std::move(store)));
    KRONSERVE_RETURN_IF_ERROR(Serve());
    active_.Lead(runtime_, advertised(), absl::InfiniteFuture());
    return absl::OkStatus();
  }

  absl::Status StandFor(std::unique_ptr<Election> election) {
    KRONSERVE_RETURN_IF_ERROR(Serve());
    candidate_ = std::make_unique<Candidate>(
        std::move(election),
        [this](std::unique_ptr<StateStore> store) {
          return CreateRuntime(std::move(store));
        },
        &active_, &SteadyClock());
    candidate_->Start(advertised(),
                      std::min(kLongestInterval, options_.lease / 4));
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

  void Shutdown(absl::Duration grace) override { End(grace, /*resign=*/true); }

  void Kill() override { End(absl::ZeroDuration(), /*resign=*/false); }

 private:
  absl::StatusOr<std::unique_ptr<SchedulerRuntime>> CreateRuntime(
      std::unique_ptr<StateStore> store) const {
    RuntimeDependencies dependencies;
    dependencies.clock = &SteadyClock();
    dependencies.store = std::move(store);
    dependencies.link = CreateGrpcServerLink(&SteadyClock());
    return SchedulerRuntime::Create(core_options_, std::move(dependencies));
  }

  absl::Status Serve() {
    KRONSERVE_ASSIGN_OR_RETURN(
        endpoint_, Endpoint::Start({options_.listen, options_.insecure_bind},
                                   {&service_}));
    address_ = endpoint_->address();
    endpoint_->SetServing(true);
    return WriteAddressFile(options_.address_file, address_);
  }

  void End(absl::Duration grace, bool resign) {
    if (endpoint_ == nullptr) return;
    endpoint_->SetServing(false);
    endpoint_->Shutdown(grace);
    endpoint_.reset();
    if (candidate_ != nullptr) candidate_->Stop(resign);
    if (runtime_ != nullptr) runtime_->Stop();
  }

  const std::string& advertised() const {
    return options_.advertise.empty() ? address_ : options_.advertise;
  }

  // Constant once it serves, except that End() ends endpoint_.
  const SchedulerOptions options_;
  const CoreOptions core_options_;
  ActiveRuntime active_;
  SchedulerService service_;
  std::unique_ptr<Endpoint> endpoint_;
  std::string address_;
  // One of them: without others to stand in for it, or with.
  std::shared_ptr<SchedulerRuntime> runtime_;
  std::unique_ptr<Candidate> candidate_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SchedulerProcess>> SchedulerProcess::Start(
    const SchedulerOptions& options, std::unique_ptr<StateStore> store) {
  auto process = std::make_unique<SchedulerProcessImpl>(
      options, DrawIncarnation(), store->Describe());
  KRONSERVE_RETURN_IF_ERROR(process->LeadAlone(std::move(store)));
  return process;
}

absl::StatusOr<std::unique_ptr<SchedulerProcess>> SchedulerProcess::Start(
    const SchedulerOptions& options, std::unique_ptr<Election> election) {
  auto process = std::make_unique<SchedulerProcessImpl>(
      options, DrawIncarnation(), election->Describe());
  KRONSERVE_RETURN_IF_ERROR(process->StandFor(std::move(election)));
  return process;
}

}  // namespace kronserve::scheduler
