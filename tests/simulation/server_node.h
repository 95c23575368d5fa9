// A preconditioner server's process: its core, its tasks, its link to the
// scheduler.
//
// Layer: tests. What server/server_runtime.h, the services and
// server/scheduler_link.h do with threads.

#ifndef KRONSERVE_TESTS_SIMULATION_SERVER_NODE_H_
#define KRONSERVE_TESTS_SIMULATION_SERVER_NODE_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/transport.h"
#include "common/backoff.h"
#include "server/server_core.h"
#include "tests/simulation/environment.h"
#include "tests/simulation/simulated_checkpoints.h"

namespace kronserve::simulation {

// "world 2, epoch 3, l0: s1 from 12, l1: ..."
std::string DescribeConfig(const v1::JobConfig& config);

class ServerNode final : public Endpoint {
 public:
  ServerNode(Environment* env, SimulatedCheckpoints* checkpoints,
             const std::string& name, uint64_t incarnation);

  // Calls that reached this process; `done` and `on_layer` run at the caller.
  void Push(const CallPtr& call, const client::PushCall& push,
            const client::Transport::OnPushDone& done);
  void Precondition(const CallPtr& call, const client::PreconditionCall& step,
                    client::Transport::OnLayer on_layer,
                    client::Transport::OnDone done);
  void Configure(const CallPtr& call, const v1::ConfigureJobRequest& request,
                 std::function<void(const absl::Status&)> done);
  void Drop(const CallPtr& call, const v1::DropJobRequest& request,
            std::function<void(const absl::Status&)> done);

  // A layer comes from another server.
  void Transfer(const CallPtr& call, const v1::TransferLayerHeader& header,
                const server::LayerImage& image,
                const ContributionCheck::Lineage& lineage,
                const std::function<void(const absl::Status&)>& done);

  void WriteCheckpoint(
      const CallPtr& call, const v1::WriteCheckpointRequest& request,
      const std::function<
          void(const absl::StatusOr<v1::WriteCheckpointResponse>&)>& done);
  void CommitCheckpoint(const CallPtr& call,
                        const v1::CommitCheckpointRequest& request,
                        const std::function<void(const absl::Status&)>& done);

  const server::ServerCore& core() const { return core_; }

 private:
  // A Precondition call that is being answered.
  struct Stream {
    CallPtr call;
    client::Transport::OnLayer on_layer;
    client::Transport::OnDone done;
    std::vector<uint64_t> requests;
    size_t unanswered = 0;
    int64_t world = 0;
    int64_t step = 0;
  };
  using StreamPtr = std::shared_ptr<Stream>;

  void Input(const std::function<void(server::Effects*)>& input);
  void Dispatch(server::Effects effects);
  void SendReply(server::Reply reply);
  void RunMerge(server::MergeTask task);
  void RunRefresh(server::RefreshTask task);
  void RunPrecondition(server::PreconditionTask task);
  // server_node_moves.cc
  void RunTransfer(server::TransferTask task);
  void RunRestore(server::RestoreTask task);
  void Restore(const server::RestoreTask& task);
  void RunCheckpoint(const server::CheckpointTask& task);
  // server_node.cc
  absl::StatusOr<v1::PushFactorsResponse> StagePush(
      const client::PushCall& push, const server::PushTicket& ticket);
  void AddGradients(const client::PreconditionCall& step,
                    const server::StepTicket& ticket);
  void AddGradient(uint64_t request, const Tensor& tensor, uint64_t checksum);
  void ArmTimer();
  absl::Duration TaskTime(int times);

  void Exchange();
  void Register();
  void Heartbeat();
  void HeartbeatAnswered(
      const absl::StatusOr<v1::ServerHeartbeatResponse>& response);
  void Heard(const absl::Status& status, bool registering);
  void ExchangeAfter(absl::Duration delay);

  Environment* const env_;
  SimulatedCheckpoints* const checkpoints_;
  const uint64_t incarnation_;
  server::ServerCore core_;
  std::map<uint64_t, StreamPtr> streams_;  // By request.
  absl::Time timer_ = absl::InfiniteFuture();

  bool registered_ = false;
  bool soon_ = false;
  bool exchanging_ = false;
  uint64_t exchange_ = 0;  // Numbers the exchange to come; earlier ones lapse.
  Backoff backoff_;
};

}  // namespace kronserve::simulation

#endif  // KRONSERVE_TESTS_SIMULATION_SERVER_NODE_H_
