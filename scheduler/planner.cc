#include "scheduler/planner.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "placement/cost_curve.h"
#include "placement/memory_model.h"
#include "placement/placement.h"

namespace kronserve::scheduler {
namespace {

// A server that refreshes on more threads needs a workspace for each; it
// knows its number and has the last word when it is configured.
constexpr int64_t kRefreshThreads = 1;

placement::RefreshWork WorkOf(const v1::LayerSpec& layer) {
  return placement::LayerWork(layer.d_in(), layer.d_out());
}

// The job's layers, owned by the servers at `index`.
std::vector<placement::PlacedLayer> LayersToPlace(
    const Job& job, int num_nodes, const std::map<std::string, int>& index) {
  std::vector<placement::PlacedLayer> layers;
  for (int i = 0; i < job.config.layers_size(); ++i) {
    const v1::LayerSpec& spec = job.config.layers(i);
    const placement::LayerMemory memory =
        placement::DescribeLayerMemory(spec, job.config.options(), num_nodes);
    placement::PlacedLayer layer;
    layer.name = spec.name();
    layer.work = WorkOf(spec);
    layer.bytes = placement::PredictLayerBytes(memory);
    layer.workspace_bytes = placement::PredictWorkspaceBytes(memory);
    const auto owner = index.find(job.owners[i]);
    if (owner != index.end()) layer.owner = owner->second;
    layers.push_back(layer);
  }
  return layers;
}

}  // namespace

int NumNodes(const v1::World& world) {
  std::set<std::string> nodes;
  for (const v1::RankInfo& rank : world.ranks()) nodes.insert(rank.node());
  return static_cast<int>(nodes.size());
}

UseByServer UseOfJob(const Job& job, const Membership& membership) {
  UseByServer use;
  std::map<std::string, std::vector<placement::LayerMemory>> layers;
  const int num_nodes = NumNodes(job.config.world());
  for (size_t i = 0; i < job.owners.size(); ++i) {
    const ServerMember* server = membership.Find(job.owners[i]);
    if (server == nullptr) continue;
    const v1::LayerSpec& spec = job.config.layers(static_cast<int>(i));
    layers[job.owners[i]].push_back(
        placement::DescribeLayerMemory(spec, job.config.options(), num_nodes));
    use[job.owners[i]].seconds +=
        placement::RefreshSeconds(server->curve, WorkOf(spec));
    ++use[job.owners[i]].layers;
  }
  for (const auto& [name, owned] : layers) {
    use[name].bytes = placement::PredictJobBytes(
        owned, kRefreshThreads, job.config.world().ranks_size());
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
  placement::PlacementProblem problem;
  std::map<std::string, int> index;
  for (const auto& [name, member] : membership.members()) {
    if (!member.usable()) continue;
    placement::PlacementServer server;
    server.name = name;
    server.curve = member.curve;
    server.free_bytes = member.memory_bytes;
    const auto use = use_of_others.find(name);
    if (use != use_of_others.end()) {
      server.free_bytes -= use->second.bytes;
      server.load_seconds = use->second.seconds;
    }
    server.accepts_more = job.refusing.count(name) == 0;
    index[name] = static_cast<int>(problem.servers.size());
    problem.servers.push_back(server);
  }
  problem.layers = LayersToPlace(job, NumNodes(world), index);
  problem.fixed_bytes = placement::PredictStagingBytes(world.ranks_size());
  problem.partial = partial;
  KRONSERVE_ASSIGN_OR_RETURN(const placement::Placement placed,
                             placement::Place(problem));
  std::vector<std::string> owners;
  for (int owner : placed.owners) {
    owners.push_back(
        owner == placement::kNoServer ? "" : problem.servers[owner].name);
  }
  return owners;
}

}  // namespace kronserve::scheduler
