#include "server/server_runtime.h"

#include <pthread.h>

#include <algorithm>
#include <optional>

#include "common/log.h"
#include "common/status_macros.h"
#include "server/tasks.h"

namespace kronserve::server {
namespace {

// How many requests that came later may still go before a merge: gradients are
// quick, and answers of a synchronous job wait for merges.
constexpr int64_t kMergeBehind = 16;

// The timer looks no more often than this, however much comes in, and no less
// often than that.
constexpr absl::Duration kTimerPeriod = absl::Milliseconds(5);
constexpr absl::Duration kTimerRest = absl::Seconds(1);

constexpr absl::Duration kMostMargin = absl::Milliseconds(100);

// The tools of the calling pool thread, made at its first task.
absl::StatusOr<TaskTools*> ThreadTools(linalg::Device device) {
  thread_local std::optional<TaskTools> tools;
  if (!tools.has_value()) {
    KRONSERVE_ASSIGN_OR_RETURN(tools, CreateTaskTools(device));
  }
  return &*tools;
}

void Check(ArrivedTensor& arrived) {
  if (!arrived.status.ok() || arrived.tensor == nullptr) return;
  arrived.status = CheckTensor(*arrived.tensor, arrived.checksum);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerRuntime>> ServerRuntime::Create(
    RuntimeOptions options, RuntimeDependencies dependencies) {
  KRONSERVE_RETURN_IF_ERROR(CreateTaskTools(options.device).status());
  options.core.has_checkpoints = dependencies.store != nullptr;
  return std::unique_ptr<ServerRuntime>(
      new ServerRuntime(std::move(options), std::move(dependencies)));
}

ServerRuntime::ServerRuntime(RuntimeOptions options,
                             RuntimeDependencies dependencies)
    : options_(std::move(options)),
      core_(options_.core),
      transfers_(std::move(dependencies.transfers)) {
  if (dependencies.store != nullptr) {
    keeper_ = std::make_unique<CheckpointKeeper>(std::move(dependencies.store));
  }
  requests_ = std::make_unique<TaskPool>("requests", options_.request_threads);
  refresh_ = std::make_unique<TaskPool>("refresh", options_.refresh_threads);
  timer_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "timer");
    RunTimer();
  });
}

ServerRuntime::~ServerRuntime() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.NotifyAll();
    // From here on nothing new is dispatched; what is being dispatched still
    // needs the pools.
    while (dispatching_ > 0) changed_.WaitFor(&mu_, absl::Seconds(1));
  }
  timer_.join();
  requests_.reset();
  refresh_.reset();
  if (transfers_ != nullptr) transfers_->Stop();
  keeper_.reset();
}

void ServerRuntime::WithCore(
    const std::function<void(ServerCore&, Effects*)>& input) {
  Effects effects;
  Sends sends;
  {
    MutexLock lock(&mu_);
    input(core_, &effects);
    if (stopping_) return;
    writing_ += static_cast<int64_t>(effects.checkpoints.size());
    TakeSinksLocked(&effects, &sends);
    ++dispatching_;
    if (std::exchange(timer_rests_, false)) changed_.NotifyAll();
  }
  Dispatch(std::move(effects), std::move(sends));
  MutexLock lock(&mu_);
  --dispatching_;
  if (stopping_) changed_.NotifyAll();
}

void ServerRuntime::TakeSinksLocked(Effects* effects, Sends* sends) {
  for (Reply& reply : effects->replies) {
    const auto it = sinks_.find(reply.request);
    if (it == sinks_.end()) continue;
    sends->emplace_back(std::move(it->second), std::move(reply));
    sinks_.erase(it);
  }
}

void ServerRuntime::Dispatch(Effects effects, Sends sends) {
  for (PreconditionTask& task : effects.preconditions) {
    SubmitPrecondition(std::move(task));
  }
  for (MergeTask& task : effects.merges) SubmitMerge(std::move(task));
  for (RefreshTask& task : effects.refreshes) SubmitRefresh(std::move(task));
  for (TransferTask& task : effects.transfers) SubmitTransfer(std::move(task));
  for (RestoreTask& task : effects.restores) SubmitRestore(std::move(task));
  for (CheckpointTask& task : effects.checkpoints) {
    SubmitCheckpoint(std::move(task));
  }
  for (ForgetTask& task : effects.forgets) keeper_->Forget(std::move(task));
  for (auto& send : sends) send.first(std::move(send.second));
  for (const std::string& warning : effects.warnings) {
    Log(LogLevel::kWarning, warning);
  }
  if (effects.behind && behind_) behind_();
}

int64_t ServerRuntime::NextPriority(int64_t behind) {
  return next_priority_.fetch_add(1) + behind;
}

void ServerRuntime::SubmitPrecondition(PreconditionTask task) {
  auto run = [this, task = std::move(task)] {
    absl::StatusOr<TaskTools*> tools = ThreadTools(options_.device);
    absl::StatusOr<PreconditionOutput> result =
        tools.ok() ? RunPrecondition(**tools, task.input) : tools.status();
    WithCore([&](ServerCore& core, Effects* effects) {
      core.FinishPrecondition(task.request, std::move(result), effects);
    });
  };
  requests_->Submit(std::move(run), NextPriority(0));
}

void ServerRuntime::SubmitMerge(MergeTask task) {
  auto run = [this, task = std::move(task)] {
    absl::StatusOr<Averages> result = RunMerge(task.input);
    WithCore([&](ServerCore& core, Effects* effects) {
      core.FinishMerge(task.key, std::move(result), Now(), effects);
    });
  };
  requests_->Submit(std::move(run), NextPriority(kMergeBehind));
}

void ServerRuntime::SubmitRefresh(RefreshTask task) {
  auto run = [this, task = std::move(task)] {
    const absl::Time start = Now();
    absl::StatusOr<TaskTools*> tools = ThreadTools(options_.device);
    absl::StatusOr<curvature::Factorization<float>> result =
        tools.ok()
            ? RunRefresh(**tools, task.input)
            : absl::StatusOr<curvature::Factorization<float>>(tools.status());
    refresh_busy_ns_ += absl::ToInt64Nanoseconds(Now() - start);
    WithCore([&](ServerCore& core, Effects* effects) {
      core.FinishRefresh(task.key, std::move(result), Now(), effects);
    });
  };
  refresh_->Submit(std::move(run));
}

void ServerRuntime::SubmitTransfer(TransferTask task) {
  if (transfers_ == nullptr) {
    EndTransfer(task.key, task.attempt,
                absl::UnavailableError("this server sends no layers"));
    return;
  }
  auto run = [this, task = std::move(task)]() mutable {
    LayerImage image = PackLayer(task.contents);
    Shipment shipment{std::move(task.target), std::move(task.header),
                      std::move(image.tensors)};
    *shipment.header.mutable_snapshot() = std::move(image.meta);
    transfers_->Send(
        std::move(shipment),
        [this, key = task.key, attempt = task.attempt](
            const absl::Status& status) { EndTransfer(key, attempt, status); });
  };
  requests_->Submit(std::move(run), NextPriority(kMergeBehind));
}

void ServerRuntime::EndTransfer(const LayerKey& key, uint64_t attempt,
                                const absl::Status& status) {
  WithCore([&](ServerCore& core, Effects* effects) {
    core.FinishTransfer(key, attempt, status, Now(), effects);
  });
}

void ServerRuntime::SubmitRestore(RestoreTask task) {
  const LayerKey key = task.key;
  keeper_->Restore(std::move(task),
                   [this, key](absl::StatusOr<std::optional<Restored>> result) {
                     WithCore([&](ServerCore& core, Effects* effects) {
                       core.FinishRestore(key, std::move(result), Now(),
                                          effects);
                     });
                   });
}

void ServerRuntime::SubmitCheckpoint(CheckpointTask task) {
  const LayerKey key = task.key;
  const std::string checkpoint = task.checkpoint;
  keeper_->Write(
      std::move(task),
      [this, key, checkpoint](absl::StatusOr<v1::CheckpointFile> result) {
        WithCore([&](ServerCore& core, Effects* effects) {
          mu_.AssertHeld();
          core.FinishCheckpoint(key, checkpoint, result, Now(), effects);
          --writing_;
          write_failed_ = write_failed_ || !result.ok();
          changed_.NotifyAll();
        });
      });
}

void ServerRuntime::RunTimer() {
  const auto tick = [this](ServerCore& core, Effects* effects) {
    core.Tick(Now(), effects);
  };
  while (WaitForDeadline()) WithCore(tick);
}

bool ServerRuntime::WaitForDeadline() {
  MutexLock lock(&mu_);
  if (!stopping_) changed_.WaitFor(&mu_, kTimerPeriod);
  const absl::Duration rest =
      std::min(core_.NextDeadline() - Now(), kTimerRest);
  if (!stopping_ && rest > absl::ZeroDuration()) {
    timer_rests_ = true;
    changed_.WaitFor(&mu_, rest);
    timer_rests_ = false;
  }
  return !stopping_;
}

absl::StatusOr<v1::ConfigureJobResponse> ServerRuntime::ConfigureJob(
    const v1::ConfigureJobRequest& request) {
  absl::StatusOr<v1::ConfigureJobResponse> response;
  WithCore([&](ServerCore& core, Effects* effects) {
    response = core.ConfigureJob(request, Now(), effects);
  });
  return response;
}

absl::Status ServerRuntime::DropJob(const v1::DropJobRequest& request) {
  absl::Status status;
  WithCore([&](ServerCore& core, Effects* effects) {
    status = core.DropJob(request, effects);
  });
  return status;
}

absl::StatusOr<PushTicket> ServerRuntime::BeginPush(
    const v1::PushFactorsHeader& header) {
  absl::StatusOr<PushTicket> ticket;
  WithCore([&](ServerCore& core, Effects* effects) {
    ticket = core.BeginPush(header, Now(), effects);
  });
  return ticket;
}

void ServerRuntime::StagePush(PushTicket ticket, v1::PushFactorsHeader header,
                              std::vector<ArrivedTensor> tensors,
                              PushDone done) {
  auto run = [this, ticket = std::move(ticket), header = std::move(header),
              tensors = std::move(tensors), done = std::move(done)]() mutable {
    std::vector<CheckedTensor> checked;
    for (ArrivedTensor& arrived : tensors) {
      Check(arrived);
      checked.push_back({std::move(arrived.tensor), arrived.status});
    }
    absl::StatusOr<v1::PushFactorsResponse> response;
    WithCore([&](ServerCore& core, Effects* effects) {
      response = core.StagePush(ticket, header, checked, Now(), effects);
    });
    done(std::move(response));
  };
  requests_->Submit(std::move(run), NextPriority(0));
}

void ServerRuntime::AbandonPush(const PushTicket& ticket) {
  WithCore([&](ServerCore& core, Effects*) { core.AbandonPush(ticket); });
}

absl::StatusOr<StepTicket> ServerRuntime::EndStep(
    const v1::PreconditionHeader& header, absl::Duration timeout,
    ReplySink sink) {
  absl::StatusOr<StepTicket> ticket;
  WithCore([&](ServerCore& core, Effects* effects) {
    mu_.AssertHeld();
    const absl::Time now = Now();
    // A late answer is no answer: leave it time to travel.
    const absl::Duration margin = std::min(timeout / 10, kMostMargin);
    ticket = core.EndStep(header, now, now + timeout - margin, effects);
    if (!ticket.ok()) return;
    for (uint64_t request : ticket->requests) sinks_[request] = sink;
  });
  return ticket;
}

void ServerRuntime::AddGradient(uint64_t request, ArrivedTensor gradient) {
  auto run = [this, request, gradient = std::move(gradient)]() mutable {
    Check(gradient);
    WithCore([&](ServerCore& core, Effects* effects) {
      core.AddGradient(request, {std::move(gradient.tensor), gradient.status},
                       Now(), effects);
    });
  };
  requests_->Submit(std::move(run), NextPriority(0));
}

void ServerRuntime::Cancel(const std::vector<uint64_t>& requests) {
  if (requests.empty()) return;
  WithCore([&](ServerCore& core, Effects*) {
    mu_.AssertHeld();
    for (uint64_t request : requests) {
      core.Cancel(request);
      sinks_.erase(request);
    }
  });
}

absl::StatusOr<TransferTicket> ServerRuntime::BeginTransfer(
    const v1::TransferLayerHeader& header) {
  absl::StatusOr<TransferTicket> ticket;
  WithCore([&](ServerCore& core, Effects* effects) {
    ticket = core.BeginTransfer(header, effects);
  });
  return ticket;
}

void ServerRuntime::InstallLayer(TransferTicket ticket,
                                 v1::TransferLayerHeader header,
                                 LayerImage image, InstallDone done) {
  auto run = [this, ticket = std::move(ticket), header = std::move(header),
              image = std::move(image), done = std::move(done)] {
    absl::StatusOr<LayerContents> contents = LayerContents();
    if (!ticket.installed) {
      contents = UnpackLayer(image, ticket.layer, ticket.options);
    }
    absl::StatusOr<v1::TransferLayerResponse> response;
    WithCore([&](ServerCore& core, Effects* effects) {
      response = core.InstallLayer(ticket, header, std::move(contents), Now(),
                                   effects);
    });
    done(std::move(response));
  };
  requests_->Submit(std::move(run), NextPriority(0));
}

void ServerRuntime::AbandonTransfer(const TransferTicket& ticket) {
  WithCore([&](ServerCore& core, Effects*) { core.AbandonTransfer(ticket); });
}

absl::StatusOr<v1::WriteCheckpointResponse> ServerRuntime::WriteCheckpoint(
    const v1::WriteCheckpointRequest& request) {
  absl::StatusOr<v1::WriteCheckpointResponse> response;
  WithCore([&](ServerCore& core, Effects* effects) {
    response = core.WriteCheckpoint(request, Now(), effects);
  });
  return response;
}

void ServerRuntime::CommitCheckpoint(const v1::CommitCheckpointRequest& request,
                                     StatusDone done) {
  absl::StatusOr<v1::CheckpointManifest> manifest;
  WithCore([&](ServerCore& core, Effects*) {
    manifest = core.BeginCommit(request);
  });
  if (manifest.ok()) {
    keeper_->Commit(*std::move(manifest), std::move(done));
  } else {
    done(manifest.status());
  }
}

bool ServerRuntime::SaveLayers(absl::Duration timeout) {
  if (keeper_ == nullptr) return false;
  WithCore([&](ServerCore& core, Effects* effects) {
    mu_.AssertHeld();
    write_failed_ = false;
    core.CheckpointAll(effects);
  });
  const absl::Time end = SteadyClock().Now() + timeout;
  MutexLock lock(&mu_);
  while (writing_ > 0) {
    const absl::Duration left = end - SteadyClock().Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(&mu_, left);
  }
  return !write_failed_;
}

v1::GetServerStatusResponse ServerRuntime::Status() {
  v1::GetServerStatusResponse status;
  {
    MutexLock lock(&mu_);
    status = core_.Status();
  }
  status.set_refresh_queue_depth(refresh_->queue_depth());
  status.set_refresh_busy_seconds(1e-9 *
                                  static_cast<double>(refresh_busy_ns_.load()));
  return status;
}

RuntimeSnapshot ServerRuntime::Snapshot(bool registering) {
  RuntimeSnapshot snapshot;
  int64_t layers = 0;
  int64_t predicted_bytes = 0;
  {
    MutexLock lock(&mu_);
    snapshot.held = core_.Held(registering);
    snapshot.term_seen = core_.term_seen();
    const v1::GetServerStatusResponse status = core_.Status();
    layers = status.layers_size();
    predicted_bytes = status.predicted_bytes();
  }
  snapshot.load.set_layers(layers);
  snapshot.load.set_predicted_bytes(predicted_bytes);
  snapshot.load.set_refresh_queue_depth(refresh_->queue_depth());
  snapshot.load.set_refresh_busy_seconds(
      1e-9 * static_cast<double>(refresh_busy_ns_.load()));
  return snapshot;
}

void ServerRuntime::SeeTerm(uint64_t term) {
  MutexLock lock(&mu_);
  core_.SeeTerm(term);
}

void ServerRuntime::SeeHeartbeat(const v1::ServerHeartbeatResponse& response) {
  WithCore([&](ServerCore& core, Effects* effects) {
    core.SeeProgress(response.jobs(), Now(), effects);
  });
  if (keeper_ == nullptr) return;
  keeper_->SeePeers({response.peers().begin(), response.peers().end()}, Now());
}

void ServerRuntime::FillRecovery(v1::ServerHeartbeatRequest* request) const {
  if (keeper_ != nullptr) {
    keeper_->FillRecovery(request);
    return;
  }
  request->set_state_recovery(v1::STATE_RECOVERY_NONE);
  request->set_state_recovery_message("no --checkpoint-dir");
}

}  // namespace kronserve::server
