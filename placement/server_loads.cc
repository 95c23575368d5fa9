#include "placement/server_loads.h"

#include <algorithm>

#include "placement/memory_model.h"

namespace kronserve::placement {
namespace {

int64_t ScratchBytes(const PlacedLayer& layer, const PlacementServer& server) {
  return MultiplyBytes(layer.workspace_bytes, server.refresh_threads);
}

}  // namespace

ServerLoads::ServerLoads(const PlacementProblem& problem)
    : problem_(problem),
      owners_(problem.layers.size(), kNoServer),
      bytes_(problem.servers.size(), 0),
      workspaces_(problem.servers.size(), 0),
      layers_of_(problem.servers.size()) {
  for (const PlacementServer& server : problem.servers) {
    curves_.push_back(server.curve);
    loads_.push_back(server.load_seconds);
  }
  for (size_t i = 0; i < problem.layers.size(); ++i) {
    const int owner = problem.layers[i].owner;
    if (owner != kNoServer) Give(static_cast<int>(i), owner);
  }
}

void ServerLoads::Give(int layer, int server) {
  owners_[layer] = server;
  layers_of_[server].push_back(layer);
  Add(layer, server);
}

void ServerLoads::Add(int layer, int server) {
  const PlacedLayer& item = problem_.layers[layer];
  bytes_[server] = AddBytes(bytes_[server], item.bytes);
  workspaces_[server] = std::max(workspaces_[server],
                                 ScratchBytes(item, problem_.servers[server]));
  loads_[server] += Seconds(layer, server);
}

void ServerLoads::Move(int layer, int server) {
  const int from = owners_[layer];
  std::vector<int>& layers = layers_of_[from];
  layers.erase(std::find(layers.begin(), layers.end(), layer));
  owners_[layer] = server;
  layers_of_[server].push_back(layer);
  Recount(from);
  Recount(server);
}

void ServerLoads::Recount() {
  for (int server = 0; server < num_servers(); ++server) Recount(server);
}

void ServerLoads::Recount(int server) {
  std::vector<int>& layers = layers_of_[server];
  std::sort(layers.begin(), layers.end());
  bytes_[server] = workspaces_[server] = 0;
  loads_[server] = problem_.servers[server].load_seconds;
  for (int layer : layers) Add(layer, server);
}

int ServerLoads::Busiest() const {
  int busiest = kNoServer;
  for (int server = 0; server < num_servers(); ++server) {
    if (problem_.servers[server].draining) continue;
    if (busiest == kNoServer || load(server) > load(busiest)) busiest = server;
  }
  return busiest;
}

int64_t ServerLoads::Room(int server) const {
  const int64_t used =
      AddBytes(AddBytes(bytes_[server], workspaces_[server]),
               layers_of_[server].empty() ? 0 : problem_.fixed_bytes);
  return problem_.servers[server].free_bytes - used;
}

bool ServerLoads::FitsWithout(int64_t leaving_bytes, int layer,
                              int server) const {
  const PlacedLayer& item = problem_.layers[layer];
  const PlacementServer& target = problem_.servers[server];
  if (!target.accepts_more || target.draining) return false;
  if (item.pinned_to != kNoServer && item.pinned_to != server) return false;
  const int64_t scratch =
      std::max<int64_t>(ScratchBytes(item, target) - workspaces_[server], 0);
  const int64_t extra =
      AddBytes(AddBytes(item.bytes, scratch),
               layers_of_[server].empty() ? problem_.fixed_bytes : 0);
  return extra - leaving_bytes <= Room(server);
}

}  // namespace kronserve::placement
