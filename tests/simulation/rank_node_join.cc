// RankNode: into a world, and out of it.

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/rank_node.h"
#include "tests/simulation/scheduler_node.h"
#include "worker/session_options.h"

namespace kronserve::simulation {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(5);
constexpr absl::Duration kHeartbeat = absl::Seconds(1);
constexpr absl::Duration kAgain = absl::Milliseconds(500);

std::vector<curvature::LayerShape> ShapesOf(const ClusterPlan& plan) {
  std::vector<curvature::LayerShape> shapes;
  for (const v1::LayerSpec& spec : plan.layers) {
    curvature::LayerShape& shape = shapes.emplace_back();
    shape.name = spec.name();
    shape.d_out = spec.d_out();
    shape.d_in = spec.d_in();
  }
  return shapes;
}

placement::Delegates DelegatesOf(const ClusterPlan& plan) {
  std::vector<placement::LayerDims> dims;
  for (const v1::LayerSpec& spec : plan.layers) {
    dims.push_back({spec.d_in(), spec.d_out()});
  }
  return placement::ChooseDelegates(plan.nodes, dims,
                                    worker::FactorSourceOf(plan.options));
}

}  // namespace

RankNode::Session::Session(const Environment& env,
                           const v1::JoinJobResponse& joined, int rank)
    : world(joined.world()),
      routing(kJob, static_cast<int>(env.plan.layers.size())),
      delegates(DelegatesOf(env.plan)),
      broadcast(ShapesOf(env.plan), delegates.gradient_rank, rank),
      replacer(worker::FallbackOf(env.plan.options),
               static_cast<int>(env.plan.layers.size()),
               env.tools.working.kernels.get()) {}

RankNode::RankNode(Environment* env, Launcher* launcher, int rank,
                   TrainingState state)
    : env_(env),
      launcher_(launcher),
      rank_(rank),
      incarnation_(env->random.NextId()),
      process_(std::make_shared<Process>(absl::StrCat("r", rank))),
      state_(std::move(state)),
      join_backoff_(absl::Milliseconds(10), absl::Milliseconds(250),
                    incarnation_) {
  env_->Say(process_->name(), [&] {
    return absl::StrCat("starts as ", incarnation_, " with step ",
                        state_.next_step);
  });
  Later(absl::ZeroDuration(), [this] { Join(); });
}

void RankNode::GroupBroke() {
  ++life_;
  if (step_ != nullptr) step_->over = true;
  step_ = nullptr;
  env_->Say(process_->name(), [&] {
    return absl::StrCat("lost its group, joins again from step ",
                        state_.next_step);
  });
  join_backoff_.Reset();
  Join();
}

void RankNode::Join() {
  v1::JoinJobRequest request;
  request.set_job(kJob);
  request.set_run_id("run");
  request.set_restart_count(launcher_->restart_count());
  request.set_rank(rank_);
  request.set_world_size(env_->plan.ranks());
  request.set_node(env_->plan.nodes[rank_]);
  request.set_incarnation(incarnation_);
  for (const v1::LayerSpec& layer : env_->plan.layers) {
    *request.add_layers() = layer;
  }
  *request.mutable_options() = env_->plan.options;
  request.set_next_step(state_.next_step);
  const auto done = [this, life = life_](
                        const absl::StatusOr<v1::JoinJobResponse>& response) {
    if (life == life_) Joined(response);
  };
  env_->network.Begin(
      process_, kScheduler, kCallTimeout,
      [request, done](Endpoint* endpoint, const CallPtr& call) {
        static_cast<SchedulerNode*>(endpoint)->Answer<v1::JoinJobResponse>(
            call,
            [&](scheduler::SchedulerCore* core, absl::Time now) {
              return core->JoinJob(request, now);
            },
            done);
      },
      [done](const absl::Status& status) { done(status); });
}

void RankNode::Joined(const absl::StatusOr<v1::JoinJobResponse>& response) {
  if (!response.ok()) {
    const absl::Status& status = response.status();
    const bool unreachable =
        absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
    // The launcher starts a process again that gives up on these.
    const bool later = absl::IsAborted(status) || absl::IsAlreadyExists(status);
    env_->checks.Require(unreachable || later, [&] {
      return absl::StrCat(process_->name(),
                          " may not join: ", status.ToString());
    });
    env_->Say(process_->name(), [&] { return status.ToString(); });
    return Later(later ? kAgain : join_backoff_.Next(), [this] { Join(); });
  }
  if (response->state() != v1::JOIN_STATE_READY) {
    return Later(join_backoff_.Next(), [this] { Join(); });
  }
  const v1::World& world = response->world();
  env_->checks.progress.OnWorld(world);
  env_->Say(process_->name(), [&] {
    return absl::StrCat("is in world ", world.version(), " from step ",
                        world.start_step(), ", restart ", world.restart_count(),
                        ", epoch ", response->assignment().epoch());
  });
  sessions_.push_back(std::make_shared<Session>(*env_, *response, rank_));
  env_->checks.contributions.OnWorld(world.version(),
                                     sessions_.back()->delegates.contributors);
  Adopt(response->assignment());
  Heartbeat();
  sessions_.back()->group = launcher_->GroupOf(world);
  sessions_.back()->group->Enter(rank_, this);
}

void RankNode::Formed(const TrainingState* state) {
  const int64_t world = sessions_.back()->world.version();
  if (state == nullptr) return launcher_->NobodyKnows(world);
  state_ = *state;
  Later(env_->random.Between(env_->plan.fastest_step, env_->plan.slowest_step),
        [this] { BeginStep(); });
}

void RankNode::Heartbeat() {
  const Session& session = *sessions_.back();
  v1::RankHeartbeatRequest request;
  request.set_job(kJob);
  request.set_world_version(session.world.version());
  request.set_rank(rank_);
  request.set_incarnation(incarnation_);
  request.set_step(step_ == nullptr ? -1 : state_.next_step);
  request.set_epoch(session.routing.held_epoch());
  const auto done =
      [this, life = life_](
          const absl::StatusOr<v1::RankHeartbeatResponse>& response) {
        if (life != life_) return;
        if (response.ok() && response->has_assignment()) {
          Adopt(response->assignment());
        }
        Later(kHeartbeat, [this] { Heartbeat(); });
      };
  env_->network.Begin(
      process_, kScheduler, kHeartbeat,
      [request, done](Endpoint* endpoint, const CallPtr& call) {
        static_cast<SchedulerNode*>(endpoint)
            ->Answer<v1::RankHeartbeatResponse>(
                call,
                [&](scheduler::SchedulerCore* core, absl::Time now) {
                  return core->RankHeartbeat(request, now);
                },
                done);
      },
      [done](const absl::Status& status) { done(status); });
}

}  // namespace kronserve::simulation
