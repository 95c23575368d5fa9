// A rank's process: joins, trains, votes, and joins again when its group broke.
//
// Layer: tests. What client/client.cc and worker/session.cc do with threads,
// with the same cores.

#ifndef KRONSERVE_TESTS_SIMULATION_RANK_NODE_H_
#define KRONSERVE_TESTS_SIMULATION_RANK_NODE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/routing_table.h"
#include "client/step_core.h"
#include "client/suspects.h"
#include "common/backoff.h"
#include "kronserve/v1/scheduler.pb.h"
#include "placement/delegates.h"
#include "tests/simulation/environment.h"
#include "tests/simulation/job_group.h"
#include "worker/answer_broadcast.h"
#include "worker/gradient_replacer.h"
#include "worker/step_vote.h"

namespace kronserve::simulation {

// The gradient of a step, the same on all ranks.
std::vector<float> GradientOf(const ClusterPlan& plan, int layer, int64_t step);

// What starts the ranks again, and knows which restart this is.
class Launcher {
 public:
  virtual ~Launcher() = default;
  virtual int64_t restart_count() const = 0;
  virtual JobGroup* GroupOf(const v1::World& world) = 0;
  // Nobody in this world has the parameters of its first step.
  virtual void NobodyKnows(int64_t world) = 0;
  // What the scheduler would find in its store after a power cut now.
  virtual const scheduler::StateMap& durable() const = 0;
};

class RankNode final : public GroupMember {
 public:
  RankNode(Environment* env, Launcher* launcher, int rank, TrainingState state);

  const ProcessPtr& process() const override { return process_; }
  const TrainingState& state() const override { return state_; }
  // The launcher: the group broke, join again.
  void GroupBroke();
  // It will be frozen for a while: its waits prove nothing.
  void NoteFrozen() { was_frozen_ = true; }

  void Formed(const TrainingState* state) override;
  void HandRound(worker::Communicator* group) override;
  std::vector<int64_t> Ballot() override;
  void Agreed(const std::vector<int64_t>& minimum) override;

 private:
  // Everything that belongs to one world.
  struct Session {
    Session(const Environment& env, const v1::JoinJobResponse& joined,
            int rank);
    const v1::World world;
    client::RoutingTable routing;
    client::Suspects suspects;
    const placement::Delegates delegates;
    worker::AnswerBroadcast broadcast;
    worker::GradientReplacer replacer;
    JobGroup* group = nullptr;
  };
  // Everything that belongs to one step. Calls that outlive it hold it.
  struct Step {
    Step(Session* session, client::StepRequest request,
         const client::StepContext& context)
        : session(session), core(std::move(request), context) {}
    Session* const session;
    client::StepCore core;
    absl::Time begin;
    bool over = false;
    absl::Time wake = absl::InfiniteFuture();
  };
  using StepPtr = std::shared_ptr<Step>;

  // rank_node_join.cc
  void Join();
  void Joined(const absl::StatusOr<v1::JoinJobResponse>& response);
  void Heartbeat();

  // rank_node.cc
  void BeginStep();
  client::StepRequest MakeRequest(bool voided);
  void AddContributions(int layer, client::StepRequest* request);
  void AddGradient(int layer, client::StepRequest* request);
  void Drive(const StepPtr& step, client::StepEffects effects);
  void SendPush(const StepPtr& step, client::StepEffects::Push push);
  void SendPrecondition(const StepPtr& step,
                        client::StepEffects::Precondition call);
  void ArmTimer(const StepPtr& step);
  void Done(const StepPtr& step);
  void Apply(const worker::StepDecision& decision);
  void Adopt(const v1::Assignment& assignment);
  // Runs `action` in a while unless the group breaks before.
  void Later(absl::Duration delay, const std::function<void()>& action);

  Environment* const env_;
  Launcher* const launcher_;
  const int rank_;
  const uint64_t incarnation_;
  const ProcessPtr process_;
  TrainingState state_;
  uint64_t life_ = 0;  // Grows when the group breaks.
  Backoff join_backoff_;
  bool was_frozen_ = false;
  std::vector<std::shared_ptr<Session>> sessions_;  // The last is in use.
  StepPtr step_;
  bool voided_ = false;
  std::vector<client::LayerAnswer> own_;
  std::vector<worker::HeldAnswer> held_;
};

}  // namespace kronserve::simulation

#endif  // KRONSERVE_TESTS_SIMULATION_RANK_NODE_H_
