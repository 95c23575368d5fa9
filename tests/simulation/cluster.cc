#include "tests/simulation/cluster.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/held_layer.h"

namespace kronserve::simulation {
namespace {

constexpr absl::Duration kSaveEvery = absl::Seconds(2);
constexpr absl::Duration kAskTimeout = absl::Seconds(1);
constexpr absl::Duration kAskAgain = absl::Milliseconds(200);

bool AwaitsLayerFrom(const server::ServerCore& core,
                     const std::string& source) {
  for (int layer = 0; layer < kMostLayers; ++layer) {
    const server::HeldLayer* held = core.FindHeldLayer(kJob, layer);
    if (held != nullptr && held->is_awaited() && held->source == source) {
      return true;
    }
  }
  return false;
}

}  // namespace

Cluster::Cluster(Environment* env)
    : env_(env),
      servers_(env->plan.servers, nullptr),
      ranks_(env->plan.ranks(), nullptr) {
  for (const v1::LayerSpec& layer : env_->plan.layers) {
    saved_.parameters.emplace_back(layer.d_out() * layer.d_in(), 1.0f);
  }
}

void Cluster::Run() {
  env_->network.SetWeather(env_->plan.weather);
  StartScheduler();
  for (int i = 0; i < env_->plan.ranks(); ++i) StartRank(i, saved_);
  SaveTraining();
  const absl::Time start = env_->now();
  for (int i = 0; i < env_->plan.servers; ++i) {
    env_->queue.At(start + env_->plan.starts[i], nullptr,
                   [this, i] { StartServer(i); });
  }
  for (const Fault& fault : env_->plan.faults) {
    env_->queue.At(start + fault.at, nullptr, [this, fault] { Begin(fault); });
    if (fault.at + fault.lasts >= env_->plan.faults_end) continue;
    env_->queue.At(start + fault.at + fault.lasts, nullptr,
                   [this, fault] { End(fault); });
  }
  env_->queue.At(start + env_->plan.faults_end, nullptr,
                 [this] { RepairAll(); });
  while (env_->checks.verdict.ok() &&
         env_->queue.RunOne(start + env_->plan.end)) {
  }
  if (env_->checks.verdict.ok()) env_->checks.service.Finish();
}

void Cluster::StartScheduler() {
  schedulers_.push_back(std::make_unique<SchedulerNode>(env_, &store_));
}

void Cluster::StartServer(int index) {
  all_servers_.push_back(std::make_unique<ServerNode>(
      env_, &checkpoints_, absl::StrCat("s", index), env_->random.NextId()));
  servers_[index] = all_servers_.back().get();
}

void Cluster::StartRank(int rank, const TrainingState& state) {
  all_ranks_.push_back(std::make_unique<RankNode>(env_, this, rank, state));
  ranks_[rank] = all_ranks_.back().get();
}

const TrainingState* Cluster::LivingState() const {
  for (const RankNode* rank : ranks_) {
    if (rank != nullptr && rank->process()->alive()) return &rank->state();
  }
  return nullptr;
}

void Cluster::SaveTraining() {
  if (const TrainingState* state = LivingState()) saved_ = *state;
  env_->queue.After(kSaveEvery, nullptr, [this] { SaveTraining(); });
}

JobGroup* Cluster::GroupOf(const v1::World& world) {
  std::unique_ptr<JobGroup>& group = groups_[world.version()];
  if (group == nullptr) {
    group = std::make_unique<JobGroup>(env_, env_->plan.ranks(),
                                       world.start_step());
    if (world.restart_count() < restart_count_) group->Break();
  }
  return group.get();
}

void Cluster::NobodyKnows(int64_t world) {
  // Each rank finds out; one restart is enough.
  if (world == groups_.rbegin()->first) RestartRanks();
}

void Cluster::RestartRanks() {
  ++restart_count_;
  for (auto& [world, group] : groups_) group->Break();
  for (RankNode* rank : ranks_) {
    if (!rank->process()->alive()) continue;
    env_->queue.After(
        env_->random.Between(absl::Milliseconds(1), absl::Milliseconds(300)),
        rank->process(), [rank] { rank->GroupBroke(); });
  }
}

void Cluster::Begin(const Fault& fault) {
  env_->Say("fault", [&] {
    return absl::StrCat(NameOf(fault.kind), " ", fault.target);
  });
  switch (fault.kind) {
    case FaultKind::kKillServer:
    case FaultKind::kLoseServer:
    case FaultKind::kFreezeServer:
      return BeginAtServer(fault);
    case FaultKind::kCutServer:
    case FaultKind::kCutServerLink:
      return CutServer(fault, true);
    case FaultKind::kDrainServer:
      return Drain(fault.target, /*undo=*/false);
    case FaultKind::kPinLayer:
      return Pin(fault.layer, absl::StrCat("s", fault.target));
    case FaultKind::kKillRank:
    case FaultKind::kFreezeRank:
    case FaultKind::kBreakGroup:
      return BeginAtRank(fault);
    default:
      return BeginAtScheduler(fault);
  }
}

void Cluster::BeginAtServer(const Fault& fault) {
  if (servers_[fault.target] == nullptr) return;
  const ProcessPtr& process = servers_[fault.target]->process();
  if (!process->alive()) return;
  env_->checks.service.OnLoss();
  if (IsAwaitedFrom(process->name())) {
    env_->checks.service.OnInterruptedMove();
  }
  if (fault.kind == FaultKind::kFreezeServer) {
    env_->queue.Freeze(process.get());
  } else {
    env_->network.Kill(process, fault.kind == FaultKind::kLoseServer);
  }
}

bool Cluster::IsAwaitedFrom(const std::string& source) const {
  for (const ServerNode* server : servers_) {
    if (server == nullptr || !server->process()->alive()) continue;
    if (AwaitsLayerFrom(server->core(), source)) return true;
  }
  return false;
}

void Cluster::BeginAtRank(const Fault& fault) {
  if (fault.kind == FaultKind::kBreakGroup) return RestartRanks();
  RankNode* const rank = ranks_[fault.target];
  if (!rank->process()->alive()) return;
  if (fault.kind == FaultKind::kFreezeRank) {
    env_->queue.Freeze(rank->process().get());
    rank->NoteFrozen();
    return;
  }
  env_->network.Kill(rank->process(), false);
  RestartRanks();
}

void Cluster::BeginAtScheduler(const Fault& fault) {
  SchedulerNode* const scheduler = schedulers_.back().get();
  switch (fault.kind) {
    case FaultKind::kKillScheduler:
      if (!scheduler->process()->alive()) return;
      scheduler->Die();
      return env_->network.Kill(scheduler->process(), false);
    case FaultKind::kFreezeScheduler:
      if (scheduler->process()->alive()) {
        env_->queue.Freeze(scheduler->process().get());
      }
      return;
    case FaultKind::kCutScheduler:
      if (fault.direction != 2) env_->network.Cut(kScheduler, "*");
      if (fault.direction != 1) env_->network.Cut("*", kScheduler);
      return;
    default:
      scheduler->SetDiskFull(true);
  }
}

void Cluster::CutServer(const Fault& fault, bool cut) {
  const std::string server = absl::StrCat("s", fault.target);
  std::string peer = "*";
  if (fault.kind == FaultKind::kCutServerLink) {
    peer = fault.peer < 0 ? kScheduler : absl::StrCat("r", fault.peer);
  }
  const auto change = [&](const std::string& from, const std::string& to) {
    if (cut) {
      env_->network.Cut(from, to);
    } else {
      env_->network.Heal(from, to);
    }
  };
  if (fault.direction != 2) change(server, peer);
  if (fault.direction != 1) change(peer, server);
}

void Cluster::End(const Fault& fault) {
  env_->Say("repair", [&] {
    return absl::StrCat(NameOf(fault.kind), " ", fault.target);
  });
  const bool of_server = fault.kind == FaultKind::kKillServer ||
                         fault.kind == FaultKind::kLoseServer ||
                         fault.kind == FaultKind::kFreezeServer;
  if (of_server && servers_[fault.target] == nullptr) return;
  switch (fault.kind) {
    case FaultKind::kDrainServer:
      return Drain(fault.target, /*undo=*/true);
    case FaultKind::kPinLayer:
      return Pin(fault.layer, "");
    case FaultKind::kKillServer:
    case FaultKind::kLoseServer:
      if (servers_[fault.target]->process()->alive()) return;
      return StartServer(fault.target);
    case FaultKind::kFreezeServer:
      return env_->queue.Thaw(servers_[fault.target]->process());
    case FaultKind::kCutServer:
    case FaultKind::kCutServerLink:
      return CutServer(fault, false);
    case FaultKind::kKillScheduler:
      if (!schedulers_.back()->process()->alive()) StartScheduler();
      return;
    case FaultKind::kFreezeScheduler:
      return env_->queue.Thaw(schedulers_.back()->process());
    case FaultKind::kCutScheduler:
      env_->network.Heal(kScheduler, "*");
      return env_->network.Heal("*", kScheduler);
    case FaultKind::kKillRank:
      if (ranks_[fault.target]->process()->alive()) return;
      return StartRank(fault.target,
                       LivingState() != nullptr && env_->random.Chance(0.8)
                           ? *LivingState()
                           : saved_);
    case FaultKind::kFreezeRank:
      return env_->queue.Thaw(ranks_[fault.target]->process());
    case FaultKind::kBreakGroup:
      return;
    case FaultKind::kDiskFull:
      return schedulers_.back()->SetDiskFull(false);
  }
}

void Cluster::RepairAll() {
  env_->Say("repair", [] { return "all"; });
  env_->network.HealAll();
  env_->network.SetWeather(NetworkWeather());
  schedulers_.back()->SetDiskFull(false);
  for (const Fault& fault : env_->plan.faults) End(fault);
}

template <typename Response>
void Cluster::Ask(std::function<absl::StatusOr<Response>(
                      scheduler::SchedulerCore*, absl::Time)>
                      ask) {
  const auto done = [this, ask](const absl::StatusOr<Response>& response) {
    env_->Say("operator", [&] { return response.status().ToString(); });
    const bool again = absl::IsUnavailable(response.status()) ||
                       absl::IsDeadlineExceeded(response.status());
    if (!again) return;
    env_->queue.After(kAskAgain, operator_,
                      [this, ask] { Ask<Response>(ask); });
  };
  env_->network.Begin(
      operator_, kScheduler, kAskTimeout,
      [ask, done](Endpoint* endpoint, const CallPtr& call) {
        static_cast<SchedulerNode*>(endpoint)->Answer<Response>(call, ask,
                                                                done);
      },
      [done](const absl::Status& status) { done(status); });
}

void Cluster::Drain(int server, bool undo) {
  v1::DrainServerRequest request;
  request.set_server(absl::StrCat("s", server));
  request.set_undo(undo);
  Ask<v1::DrainServerResponse>(
      [request](scheduler::SchedulerCore* core, absl::Time now) {
        return core->DrainServer(request, now);
      });
}

void Cluster::Pin(int layer, const std::string& server) {
  v1::PinLayersRequest request;
  request.set_job(kJob);
  request.add_layers(env_->plan.layers[layer].name());
  request.set_server(server);
  Ask<v1::PinLayersResponse>(
      [request](scheduler::SchedulerCore* core, absl::Time now) {
        return core->PinLayers(request, now);
      });
}

}  // namespace kronserve::simulation
