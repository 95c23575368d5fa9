// A rank's connection to the service: joins a job, keeps its lease, and takes
// a step's factors and gradients to the owners of the layers.
//
// Layer: client. May include proto/ and common/.
// worker/session.h is the training API on top of it.

#ifndef KRONSERVE_CLIENT_INCLUDE_KRONSERVE_CLIENT_H_
#define KRONSERVE_CLIENT_INCLUDE_KRONSERVE_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/routing_table.h"
#include "client/scheduler_api.h"
#include "client/scheduler_client.h"
#include "client/step_core.h"
#include "client/suspects.h"
#include "client/transport.h"
#include "common/mutex.h"
#include "kronserve/v1/scheduler.pb.h"

namespace kronserve::client {

// What a client reaches the world through.
struct ClientDependencies {
  std::unique_ptr<SchedulerApi> scheduler;
  std::unique_ptr<Transport> transport;
  Timing timing;
};

// gRPC to everybody, on the machine's clock.
ClientDependencies GrpcDependencies(const std::string& scheduler_address);

// One rank's client of one job.
//
// Thread safety: thread-safe, but one RunStep() at a time.
// Lifetime:      the destructor stops the heartbeats and cancels what is still
//                on its way; it does not finish the job.
class Client {
 public:
  // Registers the rank and waits until the job is ready; then heartbeats run.
  //
  // Errors: JoinJob's (scheduler_client.h).
  static absl::StatusOr<std::unique_ptr<Client>> Join(
      const v1::JoinJobRequest& request, absl::Duration timeout,
      ClientDependencies dependencies);

  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // The scheduler's answer: world, plan, hash. Its assignment is the first
  // one, not the newest.
  const v1::JoinJobResponse& joined() const { return joined_; }

  // This process's rank in the world, which is another than it asked for when
  // the world was formed without some.
  int rank() const { return rank_; }

  RendezvousBoard& rendezvous() { return rendezvous_; }

  // Why the world is over, by the scheduler's word; OK while it is not. From
  // then on RunStep() returns at once, with every layer fallen back.
  absl::Status lost() const ABSL_LOCKS_EXCLUDED(mu_);
  // `callback` is called when the world is over, from another thread or at
  // once, perhaps twice; never after the next call. Null: nobody is told.
  void OnLost(const std::function<void()>& callback)
      ABSL_LOCKS_EXCLUDED(mu_, lost_mu_);

  // What the next heartbeats report as the newest step begun. RunStep() does
  // it too.
  void ReportStep(int64_t step) ABSL_LOCKS_EXCLUDED(mu_);

  // Takes one step's traffic to the servers. Blocks until every layer has an
  // answer and every owner the commit, at most the job's step budget. A layer
  // that could not be preconditioned is an answer with its reason.
  StepAnswer RunStep(StepRequest request) ABSL_LOCKS_EXCLUDED(mu_);

  // Per layer: whether its owner at `step` is a suspect that this rank has not
  // heard since. Ranks share it in the step vote, so that a lost server makes
  // one step longer, not one per rank, and is asked by all again at once.
  std::vector<bool> SilentOwners(int64_t step) const ABSL_LOCKS_EXCLUDED(mu_);
  // Takes what the vote on `step` decided: the owners at `step` that some rank
  // cannot hear, and the epoch of the following steps: the newest held one up
  // to `agreed`.
  void TakeVote(int64_t step, const std::vector<bool>& silent, uint64_t agreed)
      ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t held_epoch() const ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t used_epoch() const ABSL_LOCKS_EXCLUDED(mu_);

  // Ends the job for all ranks. Idempotent.
  absl::Status Finish();

 private:
  // The step that callbacks belong to: answers may come after it has ended.
  using Step = std::shared_ptr<StepCore>;

  Client(const v1::JoinJobRequest& request, v1::JoinJobResponse joined,
         ClientDependencies dependencies);

  v1::RankHeartbeatRequest NextHeartbeat() ABSL_LOCKS_EXCLUDED(mu_);
  void OnAssignment(const v1::Assignment& assignment) ABSL_LOCKS_EXCLUDED(mu_);
  void OnWorldLost(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_, lost_mu_);
  // Waits for the step's next event or deadline; false when it is done.
  bool WaitForStep(const Step& step) ABSL_LOCKS_EXCLUDED(mu_);
  // Lets `input` run on the core under the lock, and what comes of it outside.
  template <typename Input>
  void Drive(const Step& step, const Input& input) ABSL_LOCKS_EXCLUDED(mu_);
  void Execute(const Step& step, StepEffects effects) ABSL_LOCKS_EXCLUDED(mu_);
  void Send(const Step& step, StepEffects::Push push) ABSL_LOCKS_EXCLUDED(mu_);
  void Send(const Step& step, StepEffects::Precondition precondition)
      ABSL_LOCKS_EXCLUDED(mu_);
  void LogChanges(const std::vector<Suspects::Change>& changes) const;

  const v1::JoinJobRequest request_;
  const v1::JoinJobResponse joined_;
  const int rank_;
  const absl::Duration budget_;
  const Timing timing_;
  const std::unique_ptr<SchedulerApi> scheduler_;
  RendezvousBoard rendezvous_;

  mutable Mutex mu_;
  CondVar changed_;
  RoutingTable routing_ ABSL_GUARDED_BY(mu_);
  Suspects suspects_ ABSL_GUARDED_BY(mu_);
  Step current_ ABSL_GUARDED_BY(mu_);  // Null between steps.
  int64_t newest_step_ ABSL_GUARDED_BY(mu_) = -1;
  absl::Status lost_ ABSL_GUARDED_BY(mu_);

  // Held while the callback runs, so that it cannot outlive its owner.
  Mutex lost_mu_;
  std::function<void()> on_lost_ ABSL_GUARDED_BY(lost_mu_);

  // Destroyed first, heartbeats before transport: both call back into this.
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Heartbeats> heartbeats_;
};

}  // namespace kronserve::client

#endif  // KRONSERVE_CLIENT_INCLUDE_KRONSERVE_CLIENT_H_
