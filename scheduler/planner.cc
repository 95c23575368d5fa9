#include "scheduler/planner.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "placement/cost_curve.h"
#include "placement/memory_model.h"
#include "placement/placement.h"
#include "placement/rebalance.h"

namespace kronserve::scheduler {
namespace {

placement::LayerMemory MemoryOf(const Job& job, int layer, int num_nodes) {
  return placement::DescribeLayerMemory(job.config.layers(layer),
                                        job.config.options(), num_nodes);
}

// A placement problem, and the servers behind its indices.
struct Problem {
  placement::PlacementProblem problem;
  std::map<std::string, int> index;

  int IndexOf(const std::string& server) const {
    const auto found = index.find(server);
    return found == index.end() ? placement::kNoServer : found->second;
  }
  std::vector<std::string> Names(const std::vector<int>& owners) const {
    std::vector<std::string> names;
    for (const int owner : owners) {
      names.push_back(
          owner == placement::kNoServer ? "" : problem.servers[owner].name);
    }
    return names;
  }
};

void AddServers(const Job& job, const Membership& membership,
                const UseByServer& use_of_others, Problem* p) {
  for (const auto& [name, member] : membership.members()) {
    if (!member.usable()) continue;
    placement::PlacementServer server;
    server.name = name;
    server.curve = member.curve;
    server.refresh_threads = member.refresh_threads;
    server.free_bytes = member.memory_bytes;
    const auto use = use_of_others.find(name);
    if (use != use_of_others.end()) {
      server.free_bytes -= use->second.bytes;
      server.load_seconds = use->second.seconds;
    }
    server.accepts_more = job.refusing.count(name) == 0;
    server.draining = membership.draining(name);
    p->index[name] = static_cast<int>(p->problem.servers.size());
    p->problem.servers.push_back(server);
  }
}

// The server a layer is tied to; a pin binds while its server lives and is to
// be used.
int PinOf(const Job& job, int layer, const Problem& p) {
  const auto pin = job.wishes.pins().find(layer);
  if (pin == job.wishes.pins().end()) return placement::kNoServer;
  const int server = p.IndexOf(pin->second);
  if (server == placement::kNoServer || p.problem.servers[server].draining) {
    return placement::kNoServer;
  }
  return server;
}

void AddLayers(const Job& job, int num_nodes, Problem* p) {
  for (int i = 0; i < job.config.layers_size(); ++i) {
    const v1::LayerSpec& spec = job.config.layers(i);
    const placement::LayerMemory memory = MemoryOf(job, i, num_nodes);
    placement::PlacedLayer layer;
    layer.name = spec.name();
    layer.work = WorkOf(spec);
    layer.bytes = placement::PredictLayerBytes(memory);
    layer.workspace_bytes = placement::PredictWorkspaceBytes(memory);
    layer.owner = p->IndexOf(job.layers[i].owner);
    layer.pinned_to = PinOf(job, i, *p);
    const int source = p->IndexOf(job.layers[i].source);
    if (source != placement::kNoServer) {
      p->problem.servers[source].free_bytes -= layer.bytes;
    }
    p->problem.layers.push_back(layer);
  }
}

Problem MakeProblem(const Job& job, const v1::World& world,
                    const Membership& membership,
                    const UseByServer& use_of_others) {
  Problem p;
  AddServers(job, membership, use_of_others, &p);
  AddLayers(job, NumNodes(world), &p);
  p.problem.fixed_bytes = placement::PredictStagingBytes(world.ranks_size());
  return p;
}

}  // namespace

int NumNodes(const v1::World& world) {
  std::set<std::string> nodes;
  for (const v1::RankInfo& rank : world.ranks()) nodes.insert(rank.node());
  return static_cast<int>(nodes.size());
}

placement::RefreshWork WorkOf(const v1::LayerSpec& layer) {
  return placement::LayerWork(layer.d_in(), layer.d_out());
}

UseByServer UseOfJob(const Job& job, const Membership& membership) {
  UseByServer use;
  std::map<std::string, std::vector<placement::LayerMemory>> held;
  const int num_nodes = NumNodes(job.config.world());
  for (size_t i = 0; i < job.layers.size(); ++i) {
    const LayerPlace& place = job.layers[i];
    const placement::LayerMemory memory =
        MemoryOf(job, static_cast<int>(i), num_nodes);
    if (membership.Find(place.source) != nullptr) {
      held[place.source].push_back(memory);
    }
    const ServerMember* server = membership.Find(place.owner);
    if (server == nullptr) continue;
    held[place.owner].push_back(memory);
    use[place.owner].seconds += placement::RefreshSeconds(
        server->curve, WorkOf(job.config.layers(static_cast<int>(i))));
    ++use[place.owner].layers;
  }
  for (const auto& [name, layers] : held) {
    use[name].bytes = placement::PredictJobBytes(
        layers, membership.Find(name)->refresh_threads,
        job.config.world().ranks_size());
  }
  return use;
}

UseByServer UseOfAll(const JobTable& jobs, const Membership& membership,
                     const Job* except) {
  UseByServer sum;
  for (const auto& [name, job] : jobs) {
    if (&job == except || job.finished) continue;
    for (const auto& [server, use] : UseOfJob(job, membership)) {
      sum[server].bytes = placement::AddBytes(sum[server].bytes, use.bytes);
      sum[server].seconds += use.seconds;
      sum[server].layers += use.layers;
    }
  }
  return sum;
}

absl::StatusOr<std::vector<std::string>> PlanOwners(
    const Job& job, const v1::World& world, bool partial,
    const Membership& membership, const UseByServer& use_of_others) {
  Problem p = MakeProblem(job, world, membership, use_of_others);
  p.problem.partial = partial;
  KRONSERVE_ASSIGN_OR_RETURN(const placement::Placement placed,
                             placement::Place(p.problem));
  return p.Names(placed.owners);
}

absl::StatusOr<PlannedMoves> PlanMoves(const Job& job, bool balance,
                                       const Membership& membership,
                                       const UseByServer& use_of_others,
                                       absl::Time now) {
  Problem p = MakeProblem(job, job.config.world(), membership, use_of_others);
  for (placement::PlacementServer& server : p.problem.servers) {
    const ServerMember& member = *membership.Find(server.name);
    if (membership.StateOf(member, now) != v1::MEMBER_STATE_ALIVE) {
      server.accepts_more = false;
    }
  }
  placement::RebalanceOptions options;
  options.balance = balance;
  KRONSERVE_ASSIGN_OR_RETURN(placement::Rebalancing planned,
                             placement::Rebalance(p.problem, options));
  PlannedMoves moves{p.Names(planned.owners), std::move(planned.note)};
  for (size_t i = 0; i < job.layers.size(); ++i) {
    const LayerPlace& place = job.layers[i];
    // A layer moves again only when it has arrived.
    if (place.moving() || !place.issued) moves.owners[i] = place.owner;
  }
  return moves;
}

absl::Status CheckRoom(const Job& job, const std::vector<int>& layers,
                       const ServerMember& server,
                       const UseByServer& use_of_others) {
  const std::string& name = server.address.name();
  std::set<int> held(layers.begin(), layers.end());
  for (size_t i = 0; i < job.layers.size(); ++i) {
    const LayerPlace& place = job.layers[i];
    if (place.owner == name || place.source == name) {
      held.insert(static_cast<int>(i));
    }
  }
  std::vector<placement::LayerMemory> memory;
  const int num_nodes = NumNodes(job.config.world());
  for (const int layer : held) {
    memory.push_back(MemoryOf(job, layer, num_nodes));
  }
  const int64_t needed = placement::PredictJobBytes(
      memory, server.refresh_threads, job.config.world().ranks_size());
  const auto others = use_of_others.find(name);
  const int64_t had =
      server.memory_bytes -
      (others == use_of_others.end() ? 0 : others->second.bytes);
  if (needed <= had) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("job '", job.name, "' would need ", needed,
                   " bytes on server '", name, "', it has ", had, " for it"));
}

}  // namespace kronserve::scheduler
