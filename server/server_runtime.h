// Drives a ServerCore with threads: one mutex, pools, one timer.
//
// Layer: server. May include checkpoint/, curvature/, placement/, linalg/,
// proto/, common/.
// The pool `requests` checks tensors, merges rounds, preconditions and packs
// layers that move; the pool `refresh` factorises, so that a refresh never
// stands before a request; checkpoints have threads of their own
// (checkpoint_keeper.h). Tasks and answers never run under the lock.

#ifndef KRONSERVE_SERVER_SERVER_RUNTIME_H_
#define KRONSERVE_SERVER_SERVER_RUNTIME_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/task_pool.h"
#include "linalg/backend.h"
#include "server/checkpoint_keeper.h"
#include "server/server_core.h"
#include "server/transfer_link.h"

namespace kronserve::server {

struct RuntimeOptions {
  CoreOptions core;
  linalg::Device device = linalg::Device::kCpu;
  int request_threads = 2;
  int refresh_threads = 1;
  const Clock* clock = nullptr;  // Not null; outlives the runtime.
};

// What a runtime reaches the world through; each may be null: then no layer
// can be handed over, or none is saved.
struct RuntimeDependencies {
  std::unique_ptr<TransferLink> transfers;
  std::unique_ptr<checkpoint::CheckpointStore> store;
};

// A tensor as its chunks gave it; checked here.
struct ArrivedTensor {
  Tensor tensor;  // Null for an item without data, or with `status` an error.
  uint64_t checksum = 0;
  absl::Status status;
};

// What a server tells its scheduler.
struct RuntimeSnapshot {
  std::vector<v1::JobHeld> held;
  v1::ServerLoad load;
  uint64_t term_seen = 0;
};

// Thread safety: thread-safe. No method but SaveLayers() waits for a task.
// Lifetime:      callers are gone when it is destroyed; the destructor ends the
//                running tasks. Callbacks run on threads of the pools, the
//                timer, or the caller, and must not block.
class ServerRuntime {
 public:
  using PushDone = std::function<void(absl::StatusOr<v1::PushFactorsResponse>)>;
  using ReplySink = std::function<void(Reply)>;
  using InstallDone =
      std::function<void(absl::StatusOr<v1::TransferLayerResponse>)>;
  using StatusDone = std::function<void(const absl::Status&)>;

  // Errors:
  //   kFailedPrecondition  the device is not usable here.
  static absl::StatusOr<std::unique_ptr<ServerRuntime>> Create(
      RuntimeOptions options, RuntimeDependencies dependencies = {});
  ~ServerRuntime();

  // ServerControl; errors as in preconditioner.proto.
  absl::StatusOr<v1::ConfigureJobResponse> ConfigureJob(
      const v1::ConfigureJobRequest& request);
  absl::Status DropJob(const v1::DropJobRequest& request);
  v1::GetServerStatusResponse Status();

  // A push: its header, then either its tensors or nothing. `done` is called
  // exactly once. Errors as in preconditioner.proto.
  absl::StatusOr<PushTicket> BeginPush(const v1::PushFactorsHeader& header);
  void StagePush(PushTicket ticket, v1::PushFactorsHeader header,
                 std::vector<ArrivedTensor> tensors, PushDone done);
  void AbandonPush(const PushTicket& ticket);

  // The end of a step: its header, then its gradients.
  //
  //   timeout  until the caller's deadline; answers come a tenth of it, at most
  //            100 ms, earlier.
  //   sink     called once per item, possibly before this returns, unless the
  //            request is cancelled; a call that began before Cancel() may end
  //            after it.
  absl::StatusOr<StepTicket> EndStep(const v1::PreconditionHeader& header,
                                     absl::Duration timeout, ReplySink sink);
  void AddGradient(uint64_t request, ArrivedTensor gradient);
  void Cancel(const std::vector<uint64_t>& requests);

  // A layer that comes: its header, then either its image or nothing. `done` is
  // called exactly once. Errors as in preconditioner.proto.
  absl::StatusOr<TransferTicket> BeginTransfer(
      const v1::TransferLayerHeader& header);
  void InstallLayer(TransferTicket ticket, v1::TransferLayerHeader header,
                    LayerImage image, InstallDone done);
  void AbandonTransfer(const TransferTicket& ticket);

  // Job checkpoints; errors as in preconditioner.proto.
  absl::StatusOr<v1::WriteCheckpointResponse> WriteCheckpoint(
      const v1::WriteCheckpointRequest& request);
  void CommitCheckpoint(const v1::CommitCheckpointRequest& request,
                        StatusDone done);
  // The process ends: writes what is still here and waits for that, up to
  // `timeout`. False when not all was written.
  bool SaveLayers(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);

  // For the link to the scheduler. `registering`: with all it knows of its
  // jobs.
  RuntimeSnapshot Snapshot(bool registering);
  void SeeTerm(uint64_t term);
  void SeeHeartbeat(const v1::ServerHeartbeatResponse& response);
  void FillRecovery(v1::ServerHeartbeatRequest* request) const;
  // Called when a caller showed a newer world or epoch. Set before any call
  // comes in.
  void OnBehind(std::function<void()> behind) { behind_ = std::move(behind); }

 private:
  using Sends = std::vector<std::pair<ReplySink, Reply>>;

  ServerRuntime(RuntimeOptions options, RuntimeDependencies dependencies);

  // Runs `input` on the core under the lock, and what it asks for outside.
  void WithCore(const std::function<void(ServerCore&, Effects*)>& input)
      ABSL_LOCKS_EXCLUDED(mu_);
  void TakeSinksLocked(Effects* effects, Sends* sends)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Dispatch(Effects effects, Sends sends) ABSL_LOCKS_EXCLUDED(mu_);
  void SubmitMerge(MergeTask task);
  void SubmitRefresh(RefreshTask task);
  void SubmitPrecondition(PreconditionTask task);
  void SubmitTransfer(TransferTask task);
  void EndTransfer(const LayerKey& key, uint64_t attempt,
                   const absl::Status& status);
  void SubmitRestore(RestoreTask task);
  void SubmitCheckpoint(CheckpointTask task);
  void RunTimer() ABSL_LOCKS_EXCLUDED(mu_);
  // False: the runtime ends.
  bool WaitForDeadline() ABSL_LOCKS_EXCLUDED(mu_);
  int64_t NextPriority(int64_t behind);
  absl::Time Now() const { return options_.clock->Now(); }

  const RuntimeOptions options_;
  std::function<void()> behind_;
  std::atomic<int64_t> next_priority_{0};
  std::atomic<int64_t> refresh_busy_ns_{0};

  Mutex mu_;
  CondVar changed_;
  ServerCore core_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, ReplySink> sinks_ ABSL_GUARDED_BY(mu_);
  int dispatching_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t writing_ ABSL_GUARDED_BY(mu_) = 0;        // Checkpoint tasks.
  bool write_failed_ ABSL_GUARDED_BY(mu_) = false;  // Since SaveLayers() began.
  bool timer_rests_ ABSL_GUARDED_BY(mu_) = false;   // New work wakes it.
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  const std::unique_ptr<TransferLink> transfers_;
  std::unique_ptr<CheckpointKeeper> keeper_;  // Null: nothing is saved.
  std::thread timer_;
  std::unique_ptr<TaskPool> requests_;
  std::unique_ptr<TaskPool> refresh_;
};

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_SERVER_RUNTIME_H_
