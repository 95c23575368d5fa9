// A SchedulerCore with fake servers and a fake clock, all in one thread.

#ifndef KRONSERVE_SCHEDULER_TESTING_CORE_HARNESS_H_
#define KRONSERVE_SCHEDULER_TESTING_CORE_HARNESS_H_

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "scheduler/memory/factory.h"
#include "scheduler/scheduler_core.h"

namespace kronserve::scheduler::testing {

inline v1::LayerSpec Layer(const std::string& name, int64_t d_out,
                           int64_t d_in) {
  v1::LayerSpec layer;
  layer.set_name(name);
  layer.set_kind(v1::LAYER_KIND_LINEAR);
  layer.set_d_out(d_out);
  layer.set_d_in(d_in);
  layer.set_scale_a(1);
  layer.set_scale_g(1);
  return layer;
}

inline v1::JobOptions GoodOptions() {
  v1::JobOptions options;
  options.set_factor_update_steps(1);
  options.set_inv_update_steps(10);
  options.set_method(v1::COMPUTE_METHOD_INVERSE);
  options.set_damping_form(v1::DAMPING_FORM_FACTORED);
  options.set_factor_init(v1::FACTOR_INIT_WARM);
  options.set_factor_source(v1::FACTOR_SOURCE_ALL);
  options.set_refresh_schedule(v1::REFRESH_SCHEDULE_STAGGERED);
  options.set_max_staleness(5);
  options.set_round_policy(v1::ROUND_POLICY_PARTIAL);
  options.set_min_round_share(0.5);
  options.set_step_budget_ms(2000);
  options.set_round_deadline_ms(1000);
  options.set_max_open_rounds(2);
  options.set_fallback(v1::FALLBACK_KIND_MATCHED);
  options.set_deterministic(false);
  return options;
}

// A claim of `rank` in a job of `num_layers` equal layers; the process's
// incarnation is 100 + rank.
inline v1::JoinJobRequest Claim(const std::string& job, int rank,
                                int world_size, int num_layers = 4) {
  v1::JoinJobRequest request;
  request.set_job(job);
  request.set_run_id("run");
  request.set_rank(rank);
  request.set_world_size(world_size);
  request.set_node(absl::StrCat("node", rank));
  request.set_incarnation(100 + rank);
  for (int i = 0; i < num_layers; ++i) {
    *request.add_layers() = Layer(absl::StrCat("fc", i), 16, 32);
  }
  *request.mutable_options() = GoodOptions();
  return request;
}

// A server process as the scheduler sees it: it registers, renews every
// second, and does what it is told.
struct FakeServer {
  std::string address;
  uint64_t incarnation = 1;
  int64_t memory_bytes = int64_t{1} << 30;
  uint64_t term_seen = 0;
  bool alive = true;
  // What it answers to ConfigureJob; OK: it takes it.
  absl::Status refusal;
  std::map<std::string, v1::JobHeld> held;
};

class CoreHarness {
 public:
  explicit CoreHarness(CoreOptions options = {}) : options_(options) {
    Start();
  }

  // (Re)starts the scheduler from the store; servers and ranks go on.
  void Start() {
    const absl::StatusOr<uint64_t> term = RaiseTerm(store.get());
    EXPECT_TRUE(term.ok());
    auto created = SchedulerCore::Create(options_, *store->Load(), *term, now);
    EXPECT_TRUE(created.ok()) << created.status();
    core = *std::move(created);
  }

  // Starts a server process that registers at once.
  absl::Status AddServer(const std::string& name, uint64_t incarnation = 1) {
    FakeServer server;
    server.address = absl::StrCat(name, ":7000");
    server.incarnation = incarnation;
    servers[name] = server;
    return Register(name);
  }

  absl::Status Register(const std::string& name) {
    FakeServer& server = servers[name];
    v1::RegisterServerRequest request;
    request.set_name(name);
    request.set_address(server.address);
    request.set_incarnation(server.incarnation);
    request.set_memory_bytes(server.memory_bytes);
    request.set_term_seen(server.term_seen);
    for (const auto& [job, held] : server.held) *request.add_held() = held;
    const auto response = core->RegisterServer(request, now);
    if (response.ok()) server.term_seen = response->term();
    Pump();
    return response.status();
  }

  absl::StatusOr<v1::JoinJobResponse> Join(const v1::JoinJobRequest& request) {
    auto response = core->JoinJob(request, now);
    Pump();
    return response;
  }

  // All ranks join and poll until ready; the answer of rank 0.
  v1::JoinJobResponse JoinAll(const std::string& job, int world_size,
                              int num_layers = 4) {
    v1::JoinJobResponse first;
    for (int round = 0; round < 2; ++round) {
      for (int rank = 0; rank < world_size; ++rank) {
        auto response = Join(Claim(job, rank, world_size, num_layers));
        EXPECT_TRUE(response.ok()) << response.status();
        if (response.ok() && rank == 0) first = *response;
      }
    }
    EXPECT_EQ(first.state(), v1::JOIN_STATE_READY) << first.DebugString();
    return first;
  }

  absl::StatusOr<v1::RankHeartbeatResponse> Beat(const std::string& job,
                                                 int rank, int64_t step,
                                                 int64_t world_version,
                                                 uint64_t epoch) {
    v1::RankHeartbeatRequest request;
    request.set_job(job);
    request.set_rank(rank);
    request.set_world_version(world_version);
    request.set_incarnation(100 + rank);
    request.set_step(step);
    request.set_epoch(epoch);
    return core->RankHeartbeat(request, now);
  }

  // Time passes: ticks, and heartbeats of the living servers every second.
  void Advance(absl::Duration by) {
    const absl::Time end = now + by;
    while (now < end) {
      now += options_.tick;
      if ((now - absl::UnixEpoch()) % absl::Seconds(1) ==
          absl::ZeroDuration()) {
        HeartbeatAll();
      }
      core->Tick(now);
      Pump();
    }
  }

  void HeartbeatAll() {
    for (auto& [name, server] : servers) {
      if (!server.alive) continue;
      v1::ServerHeartbeatRequest request;
      request.set_name(name);
      request.set_incarnation(server.incarnation);
      for (const auto& [job, held] : server.held) *request.add_held() = held;
      const auto response = core->ServerHeartbeat(request, now);
      if (absl::IsNotFound(response.status())) {
        EXPECT_TRUE(Register(name).ok());
      }
    }
  }

  // Carries out effects until there are none.
  void Pump() {
    for (std::vector<Effect> effects = core->TakeEffects(); !effects.empty();
         effects = core->TakeEffects()) {
      for (const Effect& effect : effects) CarryOut(effect);
    }
  }

  const v1::JobStatus JobNamed(const std::string& name) const {
    const v1::GetStatusResponse status = core->GetStatus(now);
    for (const v1::JobStatus& job : status.jobs()) {
      if (job.job() == name) return job;
    }
    return v1::JobStatus();
  }

  static std::vector<std::string> Owners(const v1::Assignment& assignment) {
    std::vector<std::string> owners;
    for (const v1::LayerOwner& owner : assignment.owners()) {
      owners.push_back(owner.server());
    }
    return owners;
  }

  std::unique_ptr<StateStore> store = memory::CreateStateStore();
  absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  std::map<std::string, FakeServer> servers;
  std::unique_ptr<SchedulerCore> core;
  // What was asked for, oldest first.
  std::vector<ConfigureEffect> configured;
  std::vector<DropEffect> dropped;
  std::vector<std::string> log;
  // What the store answers.
  absl::Status store_status;
  // Writes wait in `held_writes` instead of being done.
  bool hold_writes = false;
  std::vector<PersistEffect> held_writes;

 private:
  void CarryOut(const Effect& effect) {
    if (const auto* persist = std::get_if<PersistEffect>(&effect)) {
      if (hold_writes) {
        held_writes.push_back(*persist);
        return;
      }
      absl::Status status = store_status;
      if (status.ok()) status = store->Write(persist->writes);
      core->EffectDone(persist->ticket, status, now);
    } else if (const auto* configure = std::get_if<ConfigureEffect>(&effect)) {
      configured.push_back(*configure);
      core->EffectDone(configure->ticket, Configure(*configure), now);
    } else if (const auto* drop = std::get_if<DropEffect>(&effect)) {
      dropped.push_back(*drop);
      core->EffectDone(drop->ticket, Drop(*drop), now);
    } else if (const auto* line = std::get_if<LogEffect>(&effect)) {
      log.push_back(line->message);
    }
  }

  FakeServer* Reach(const v1::ServerAddress& address) {
    const auto found = servers.find(address.name());
    if (found == servers.end() || !found->second.alive) return nullptr;
    return &found->second;
  }

  absl::Status Configure(const ConfigureEffect& effect) {
    FakeServer* server = Reach(effect.server);
    if (server == nullptr) return absl::UnavailableError("no route");
    if (!server->refusal.ok()) return server->refusal;
    if (effect.request.term() < server->term_seen) {
      return absl::AbortedError("the term is older than one already seen");
    }
    server->term_seen = effect.request.term();
    const v1::JobConfig& config = effect.request.config();
    v1::JobHeld& held = server->held[config.job()];
    if (config.assignment().epoch() <= held.epoch()) return absl::OkStatus();
    held.set_job(config.job());
    held.set_epoch(config.assignment().epoch());
    held.set_world_version(config.world().version());
    return absl::OkStatus();
  }

  absl::Status Drop(const DropEffect& effect) {
    FakeServer* server = Reach(effect.server);
    if (server == nullptr) return absl::UnavailableError("no route");
    const auto held = server->held.find(effect.request.job());
    if (held != server->held.end() &&
        held->second.world_version() <= effect.request.world_version()) {
      server->held.erase(held);
    }
    return absl::OkStatus();
  }

  const CoreOptions options_;
};

}  // namespace kronserve::scheduler::testing

#endif  // KRONSERVE_SCHEDULER_TESTING_CORE_HARNESS_H_
