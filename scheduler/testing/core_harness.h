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
#include "proto/testing/sample_job.h"
#include "scheduler/memory/factory.h"
#include "scheduler/scheduler_core.h"
#include "scheduler/testing/fake_server.h"

namespace kronserve::scheduler::testing {

using ::kronserve::testing::SampleLayer;
using ::kronserve::testing::SampleOptions;

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
    *request.add_layers() = SampleLayer(absl::StrCat("fc", i), 16, 32);
  }
  *request.mutable_options() = SampleOptions();
  return request;
}

class CoreHarness {
 public:
  explicit CoreHarness(CoreOptions options = {})
      : options_(std::move(options)) {
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
    server.name = name;
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
    request.set_refresh_threads(server.refresh_threads);
    request.set_term_seen(server.term_seen);
    for (const auto& [job, held] : server.held) {
      v1::JobHeld* told = request.add_held();
      *told = held;
      const auto config = server.configs.find(job);
      if (config != server.configs.end()) {
        *told->mutable_config() = config->second;
      }
    }
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
      if (server.alive) Heartbeat(name);
    }
    for (auto& [name, server] : servers) {
      for (auto& [other, receiver] : servers) {
        if (!server.alive || !receiver.alive) continue;
        for (auto& [job, held] : server.held) server.HandOver(job, &receiver);
      }
    }
  }

  void Heartbeat(const std::string& name) {
    FakeServer& server = servers[name];
    v1::ServerHeartbeatRequest request;
    request.set_name(name);
    request.set_incarnation(server.incarnation);
    request.set_draining(server.draining);
    request.set_state_recovery(server.state_recovery);
    for (auto& [job, held] : server.held) {
      const auto newest = server.newest_steps.find(job);
      if (newest != server.newest_steps.end()) {
        held.set_newest_step(newest->second);
      }
      *request.add_held() = held;
    }
    const auto response = core->ServerHeartbeat(request, now);
    if (absl::IsNotFound(response.status())) {
      EXPECT_TRUE(Register(name).ok());
    }
    if (!response.ok()) return;
    server.heard = *response;
    for (const v1::JobProgress& job : response->jobs()) {
      server.progress[job.job()] = job.step();
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
  std::vector<CommitCheckpointEffect> committed;
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
    } else if (const auto* write =
                   std::get_if<WriteCheckpointEffect>(&effect)) {
      FakeServer* server = Reach(write->server);
      absl::StatusOr<v1::WriteCheckpointResponse> response =
          absl::UnavailableError("no route");
      if (server != nullptr) response = server->WriteCheckpoint(write->request);
      core->CheckpointWritten(write->ticket, response, now);
    } else if (const auto* commit =
                   std::get_if<CommitCheckpointEffect>(&effect)) {
      committed.push_back(*commit);
      const FakeServer* server = Reach(commit->server);
      core->EffectDone(commit->ticket,
                       server == nullptr ? absl::UnavailableError("no route")
                                         : server->commit_status,
                       now);
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
    return server->Configure(effect.request, &next_state_);
  }

  absl::Status Drop(const DropEffect& effect) {
    FakeServer* server = Reach(effect.server);
    if (server == nullptr) return absl::UnavailableError("no route");
    server->Drop(effect.request);
    return absl::OkStatus();
  }

  // Numbers the beginnings of layers; the first job's are 1, 2, ...
  int64_t next_state_ = 1;
  const CoreOptions options_;
};

}  // namespace kronserve::scheduler::testing

#endif  // KRONSERVE_SCHEDULER_TESTING_CORE_HARNESS_H_
