#include "server/server_process.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/file_store.h"
#include "common/address_file.h"
#include "common/clock.h"
#include "common/grpc_server.h"
#include "common/incarnation.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "linalg/backend.h"
#include "server/cost_probe.h"
#include "server/layer_transfer_service.h"
#include "server/preconditioner_service.h"
#include "server/scheduler_link.h"
#include "server/server_control_service.h"
#include "server/server_runtime.h"

namespace kronserve::server {
namespace {

constexpr absl::Duration kProbeBudget = absl::Milliseconds(150);
constexpr absl::Duration kSaveTimeout = absl::Seconds(3);
// A server without layers waits so long for the scheduler to let it go.
constexpr absl::Duration kGoodbye = absl::Seconds(2);

absl::StatusOr<v1::CostCurve> ProbeCost(const ServerOptions& options,
                                        linalg::Device device) {
  if (options.cost_probe == "default") return DefaultCostCurve();
  return MeasureCostCurve(device, kProbeBudget, SteadyClock());
}

RuntimeOptions MakeRuntimeOptions(const ServerOptions& options,
                                  linalg::Device device, uint64_t incarnation) {
  RuntimeOptions runtime;
  runtime.core.name = options.name;
  runtime.core.incarnation = incarnation;
  runtime.core.memory_limit_bytes = options.memory_limit_bytes;
  runtime.core.staging_limit_bytes = options.staging_limit_bytes;
  runtime.core.refresh_threads = options.refresh_threads;
  runtime.core.checkpoint_interval = options.checkpoint_interval;
  runtime.device = device;
  runtime.request_threads = static_cast<int>(options.request_threads);
  runtime.refresh_threads = static_cast<int>(options.refresh_threads);
  runtime.clock = &SteadyClock();
  return runtime;
}

absl::StatusOr<RuntimeDependencies> MakeDependencies(
    const ServerOptions& options, uint64_t incarnation) {
  RuntimeDependencies dependencies;
  dependencies.transfers = CreateGrpcTransferLink();
  if (options.checkpoint_dir.empty()) return dependencies;
  checkpoint::FileStoreOptions store;
  store.directory = options.checkpoint_dir;
  store.server = options.name;
  store.incarnation = incarnation;
  store.keep = static_cast<int>(options.checkpoint_keep);
  KRONSERVE_ASSIGN_OR_RETURN(dependencies.store,
                             checkpoint::OpenFileStore(store));
  return dependencies;
}

class ServerProcessImpl final : public ServerProcess {
 public:
  ServerProcessImpl(std::unique_ptr<ServerRuntime> runtime,
                    uint64_t incarnation)
      : incarnation_(incarnation),
        runtime_(std::move(runtime)),
        preconditioner_(runtime_.get()),
        transfers_(runtime_.get()),
        control_(runtime_.get()) {}

  ~ServerProcessImpl() override { Kill(); }

  absl::Status Serve(const ServerOptions& options, const v1::CostCurve& cost) {
    if (!options.scheduler.empty()) MakeLink(options, cost);
    KRONSERVE_ASSIGN_OR_RETURN(
        endpoint_, Endpoint::Start({options.listen, options.insecure_bind},
                                   {&preconditioner_, &transfers_, &control_}));
    address_ = endpoint_->address();
    endpoint_->SetServing(link_ == nullptr);
    KRONSERVE_RETURN_IF_ERROR(WriteAddressFile(options.address_file, address_));
    if (link_ != nullptr) {
      link_->Start(options.advertise.empty() ? address_ : options.advertise);
    }
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }
  uint64_t incarnation() const override { return incarnation_; }
  bool is_registered() const override {
    return link_ != nullptr && link_->is_registered();
  }
  v1::GetServerStatusResponse Status() override { return runtime_->Status(); }

  void BeginDrain() override {
    if (draining_.exchange(true)) return;
    drain_began_ = SteadyClock().Now();
    endpoint_->SetServing(false);
    if (link_ != nullptr) link_->HeartbeatSoon();
  }

  bool IsDrained() override {
    if (runtime_->Status().layers_size() > 0) return false;
    return let_go_ || !is_registered() ||
           SteadyClock().Now() - drain_began_ >= kGoodbye;
  }

  void SaveLayers() override {
    const bool saved = runtime_->SaveLayers(kSaveTimeout);
    const v1::GetServerStatusResponse status = runtime_->Status();
    for (const v1::LayerStatus& layer : status.layers()) {
      Log(LogLevel::kWarning,
          saved ? "stops with a layer, which is in a checkpoint"
                : "stops with a layer, whose newest state may be lost",
          {{"job", layer.job()},
           {"layer", layer.layer()},
           {"closed_through", layer.closed_through()},
           {"updates", layer.updates()}});
    }
  }

  void Shutdown(absl::Duration grace) override {
    if (endpoint_ == nullptr) return;
    if (link_ != nullptr) link_->Stop();
    endpoint_->SetServing(false);
    endpoint_->Shutdown(grace);
    endpoint_.reset();
  }

  void Kill() override {
    if (endpoint_ == nullptr) return;
    if (link_ != nullptr) link_->Stop();
    endpoint_->Shutdown(absl::ZeroDuration());
    endpoint_.reset();
  }

 private:
  void MakeLink(const ServerOptions& options, const v1::CostCurve& cost) {
    LinkOptions link;
    link.scheduler = options.scheduler;
    link.name = options.name;
    link.incarnation = incarnation_;
    link.memory_bytes = options.memory_limit_bytes;
    link.cost = cost;
    link.refresh_threads = options.refresh_threads;
    LinkCallbacks callbacks;
    callbacks.fill = [this](bool registering,
                            v1::ServerHeartbeatRequest* request,
                            uint64_t* term_seen) {
      RuntimeSnapshot snapshot = runtime_->Snapshot(registering);
      request->mutable_held()->Assign(snapshot.held.begin(),
                                      snapshot.held.end());
      *request->mutable_load() = snapshot.load;
      request->set_draining(draining_);
      runtime_->FillRecovery(request);
      *term_seen = snapshot.term_seen;
    };
    callbacks.term = [this](uint64_t term) { runtime_->SeeTerm(term); };
    callbacks.heartbeat = [this](const v1::ServerHeartbeatResponse& response) {
      runtime_->SeeHeartbeat(response);
      if (draining_) let_go_ = response.drained();
    };
    callbacks.registered = [this] {
      if (!draining_) endpoint_->SetServing(true);
    };
    link_ =
        std::make_unique<SchedulerLink>(std::move(link), std::move(callbacks));
    runtime_->OnBehind([link = link_.get()] { link->HeartbeatSoon(); });
  }

  // Constant after Serve(), except that Shutdown() and Kill() end endpoint_.
  const uint64_t incarnation_;
  // Before runtime_: tasks that end with it still call HeartbeatSoon(). Its own
  // thread, which uses the runtime, has ended by then.
  std::unique_ptr<SchedulerLink> link_;
  const std::unique_ptr<ServerRuntime> runtime_;
  PreconditionerService preconditioner_;
  LayerTransferService transfers_;
  ServerControlService control_;
  std::unique_ptr<Endpoint> endpoint_;
  std::string address_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> let_go_{false};  // The scheduler wants nothing of it.
  absl::Time drain_began_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ServerProcess>> ServerProcess::Start(
    const ServerOptions& options) {
  KRONSERVE_ASSIGN_OR_RETURN(const linalg::Device device,
                             linalg::ResolveDevice(options.device));
  KRONSERVE_ASSIGN_OR_RETURN(const v1::CostCurve cost,
                             ProbeCost(options, device));
  const uint64_t incarnation = DrawIncarnation();
  KRONSERVE_ASSIGN_OR_RETURN(RuntimeDependencies dependencies,
                             MakeDependencies(options, incarnation));
  KRONSERVE_ASSIGN_OR_RETURN(
      auto runtime,
      ServerRuntime::Create(MakeRuntimeOptions(options, device, incarnation),
                            std::move(dependencies)));
  auto process =
      std::make_unique<ServerProcessImpl>(std::move(runtime), incarnation);
  KRONSERVE_RETURN_IF_ERROR(process->Serve(options, cost));
  Log(LogLevel::kInfo, "serving",
      {{"server", options.name},
       {"address", process->address()},
       {"device", linalg::DeviceName(device)},
       {"seconds_per_512", cost.seconds() + cost.seconds_per_d2() * 512 * 512 +
                               cost.seconds_per_d3() * 512 * 512 * 512}});
  return std::unique_ptr<ServerProcess>(std::move(process));
}

}  // namespace kronserve::server
