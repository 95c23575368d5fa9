// A preconditioner server as the scheduler sees it: it takes configurations,
// waits for layers, hands layers over, and writes checkpoints.

#ifndef KRONSERVE_SCHEDULER_TESTING_FAKE_SERVER_H_
#define KRONSERVE_SCHEDULER_TESTING_FAKE_SERVER_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "kronserve/v1/scheduler.pb.h"

namespace kronserve::scheduler::testing {

struct FakeServer {
  std::string name;
  std::string address;
  uint64_t incarnation = 1;
  int64_t memory_bytes = int64_t{1} << 30;
  int64_t refresh_threads = 1;
  uint64_t term_seen = 0;
  bool alive = true;
  bool draining = false;
  v1::StateRecovery state_recovery = v1::STATE_RECOVERY_SHARED;
  // What it answers to ConfigureJob; OK: it takes it.
  absl::Status refusal;
  // Layers on the way to or from here stay on the way.
  bool hold_transfers = false;
  // What it answers to checkpoint calls; OK: it writes.
  absl::Status checkpoint_status;
  absl::Status commit_status;

  // By job.
  std::map<std::string, v1::JobHeld> held;
  std::map<std::string, v1::JobConfig> configs;
  // By job and layer: where the state comes from. A layer that begins without
  // a source gets a number of its own; a move carries it along.
  std::map<std::string, std::map<int, int64_t>> states;
  // Newest step it saw in a call, by job; reported when set.
  std::map<std::string, int64_t> newest_steps;
  // Newest step it was told of, by job.
  std::map<std::string, int64_t> progress;
  // The last answer to its heartbeat.
  v1::ServerHeartbeatResponse heard;

  // A new process under the same name: it knows nothing.
  void Restart() {
    ++incarnation;
    alive = true;
    draining = false;
    held.clear();
  }

  absl::Status Configure(const v1::ConfigureJobRequest& request,
                         int64_t* next_state) {
    if (!refusal.ok()) return refusal;
    if (request.term() < term_seen) {
      return absl::AbortedError("the term is older than one already seen");
    }
    term_seen = request.term();
    const v1::JobConfig& config = request.config();
    if (held.count(config.job()) == 0) states[config.job()].clear();
    v1::JobHeld& mine = held[config.job()];
    if (config.assignment().epoch() <= mine.epoch()) return absl::OkStatus();
    mine.set_job(config.job());
    mine.set_epoch(config.assignment().epoch());
    mine.set_world_version(config.world().version());
    mine.clear_awaited();
    mine.clear_leaving();
    configs[config.job()] = config;
    for (const v1::LayerOwner& owner : config.assignment().owners()) {
      Adopt(owner, next_state, &mine);
    }
    return absl::OkStatus();
  }

  // Layers of `job` whose steps here are over and that `receiver` waits for.
  void HandOver(const std::string& job, FakeServer* receiver) {
    if (hold_transfers || receiver->hold_transfers) return;
    if (held.count(job) == 0 || receiver->held.count(job) == 0) return;
    const std::set<int> leaving(held[job].leaving().begin(),
                                held[job].leaving().end());
    const std::set<int> awaited(receiver->held[job].awaited().begin(),
                                receiver->held[job].awaited().end());
    for (const int layer : leaving) {
      const v1::LayerOwner& owner = configs[job].assignment().owners(layer);
      if (owner.server() != receiver->name || awaited.count(layer) == 0) {
        continue;
      }
      if (progress[job] < owner.from_step()) continue;
      receiver->states[job][layer] = states[job][layer];
      states[job].erase(layer);
      Erase(layer, held[job].mutable_leaving());
      Erase(layer, receiver->held[job].mutable_awaited());
    }
  }

  void Drop(const v1::DropJobRequest& request) {
    const auto found = held.find(request.job());
    if (found == held.end()) return;
    if (found->second.world_version() > request.world_version()) return;
    held.erase(found);
    states.erase(request.job());
  }

  // Writes its layers as soon as it heard of a step behind the cut.
  absl::StatusOr<v1::WriteCheckpointResponse> WriteCheckpoint(
      const v1::WriteCheckpointRequest& request) {
    if (!checkpoint_status.ok()) return checkpoint_status;
    v1::WriteCheckpointResponse response;
    for (const auto& [layer, state] : states[request.job()]) {
      if (progress[request.job()] <= request.step()) {
        response.set_layers_left(response.layers_left() + 1);
        continue;
      }
      v1::CheckpointFile* file = response.add_files();
      file->set_layer(layer);
      file->set_path(absl::StrCat("layer", layer));
    }
    return response;
  }

 private:
  static void Erase(int layer, google::protobuf::RepeatedField<int>* layers) {
    google::protobuf::RepeatedField<int> rest;
    for (const int other : *layers) {
      if (other != layer) rest.Add(other);
    }
    *layers = rest;
  }

  void Adopt(const v1::LayerOwner& owner, int64_t* next_state,
             v1::JobHeld* mine) {
    std::map<int, int64_t>& here = states[mine->job()];
    const bool has_it = here.count(owner.layer()) > 0;
    if (owner.server() == name) {
      if (has_it) return;
      if (!owner.source().empty()) {
        mine->add_awaited(owner.layer());
        return;
      }
      here[owner.layer()] = (*next_state)++;
      v1::LayerRecovery* recovery = mine->add_recoveries();
      recovery->set_layer(owner.layer());
      recovery->set_epoch(mine->epoch());
      recovery->set_source(v1::RECOVERY_SOURCE_FACTORS);
      recovery->set_restored_through(-1);
      recovery->set_from_step(owner.from_step());
    } else if (owner.source() == name && has_it) {
      mine->add_leaving(owner.layer());
    } else {
      here.erase(owner.layer());
    }
  }
};

}  // namespace kronserve::scheduler::testing

#endif  // KRONSERVE_SCHEDULER_TESTING_FAKE_SERVER_H_
