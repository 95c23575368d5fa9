#include "scheduler/scheduler_process.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/address_file.h"
#include "common/clock.h"
#include "common/grpc_server.h"
#include "common/incarnation.h"
#include "common/status_macros.h"
#include "scheduler/scheduler_runtime.h"
#include "scheduler/scheduler_service.h"
#include "scheduler/server_link.h"

namespace kronserve::scheduler {
namespace {

class SchedulerProcessImpl final : public SchedulerProcess {
 public:
  explicit SchedulerProcessImpl(std::unique_ptr<SchedulerRuntime> runtime)
      : runtime_(std::move(runtime)), service_(runtime_.get()) {}

  ~SchedulerProcessImpl() override { Kill(); }

  absl::Status Serve(const SchedulerOptions& options) {
    KRONSERVE_ASSIGN_OR_RETURN(
        endpoint_,
        Endpoint::Start({options.listen, options.insecure_bind}, {&service_}));
    address_ = endpoint_->address();
    endpoint_->SetServing(true);
    return WriteAddressFile(options.address_file, address_);
  }

  const std::string& address() const override { return address_; }

  void Shutdown(absl::Duration grace) override {
    if (endpoint_ == nullptr) return;
    endpoint_->SetServing(false);
    endpoint_->Shutdown(grace);
    endpoint_.reset();
    runtime_->Stop();
  }

  void Kill() override {
    if (endpoint_ == nullptr) return;
    endpoint_->Shutdown(absl::ZeroDuration());
    endpoint_.reset();
    runtime_->Stop();
  }

 private:
  // Constant after Serve(), except that Shutdown() and Kill() end endpoint_.
  const std::unique_ptr<SchedulerRuntime> runtime_;
  SchedulerService service_;
  std::unique_ptr<Endpoint> endpoint_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SchedulerProcess>> SchedulerProcess::Start(
    const SchedulerOptions& options, std::unique_ptr<StateStore> store) {
  CoreOptions core;
  core.lease.heartbeat = options.heartbeat;
  core.lease.lease = options.lease;
  core.job_ttl = options.job_ttl;
  core.incarnation = DrawIncarnation();
  RuntimeDependencies dependencies;
  dependencies.clock = &SteadyClock();
  dependencies.store = std::move(store);
  dependencies.link = CreateGrpcServerLink(&SteadyClock());
  KRONSERVE_ASSIGN_OR_RETURN(
      auto runtime, SchedulerRuntime::Create(core, std::move(dependencies)));
  auto process = std::make_unique<SchedulerProcessImpl>(std::move(runtime));
  KRONSERVE_RETURN_IF_ERROR(process->Serve(options));
  return process;
}

}  // namespace kronserve::scheduler
