// What every server of a placement problem has taken on so far.
//
// Layer: placement. May include common/ and proto/.
// The bookkeeping that greedy placement, local improvement and rebalancing
// share: seconds, bytes and layers per server.

#ifndef KRONSERVE_PLACEMENT_SERVER_LOADS_H_
#define KRONSERVE_PLACEMENT_SERVER_LOADS_H_

#include <cstdint>
#include <vector>

#include "placement/cost_curve.h"
#include "placement/placement.h"

namespace kronserve::placement {

// Thread safety: none.
// Lifetime:      `problem` must outlive it.
// Invariants:    the bytes that a server needs grow with every layer that it is
//                given, so one that does not fit will not fit later either,
//                unless another is moved away.
class ServerLoads {
 public:
  // Starts from the layers that have an owner.
  explicit ServerLoads(const PlacementProblem& problem);

  // The layer has no owner yet.
  void Give(int layer, int server);
  // The layer has an owner; recounts both servers.
  void Move(int layer, int server);

  // Sums everything anew in layer order: the result then depends on nothing
  // but the owners, to the last bit. Equal owners have equal futures.
  void Recount();

  double Seconds(int layer, int server) const {
    return RefreshSeconds(curves_[server], problem_.layers[layer].work);
  }
  double load(int server) const { return loads_[server]; }

  // The server with the largest load of those that do not drain; kNoServer
  // when all do.
  int Busiest() const;

  // Bytes left on `server`; below 0 when kept layers already exceed it.
  int64_t Room(int server) const;

  // `server` may take more, the layer is not pinned elsewhere, and it has room.
  bool Fits(int layer, int server) const {
    return FitsWithout(/*leaving_bytes=*/0, layer, server);
  }
  // The same once `leaving`, a layer of `server`, is gone (its workspace is
  // not counted as room: another layer may need it).
  bool FitsInstead(int leaving, int layer, int server) const {
    return FitsWithout(problem_.layers[leaving].bytes, layer, server);
  }

  int num_servers() const { return static_cast<int>(loads_.size()); }
  int owner(int layer) const { return owners_[layer]; }
  const std::vector<int>& owners() const { return owners_; }
  const std::vector<double>& loads() const { return loads_; }
  const std::vector<int>& layers_of(int server) const {
    return layers_of_[server];
  }

 private:
  bool FitsWithout(int64_t leaving_bytes, int layer, int server) const;
  void Add(int layer, int server);
  void Recount(int server);

  const PlacementProblem& problem_;
  std::vector<int> owners_;
  // [servers]; apart from one another because the scans read one of them.
  std::vector<CostCurve> curves_;
  std::vector<double> loads_;
  std::vector<int64_t> bytes_;
  std::vector<int64_t> workspaces_;
  std::vector<std::vector<int>> layers_of_;
};

}  // namespace kronserve::placement

#endif  // KRONSERVE_PLACEMENT_SERVER_LOADS_H_
