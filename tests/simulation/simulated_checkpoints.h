// The directory in which all servers keep their layers.
//
// Layer: tests.

#ifndef KRONSERVE_TESTS_SIMULATION_SIMULATED_CHECKPOINTS_H_
#define KRONSERVE_TESTS_SIMULATION_SIMULATED_CHECKPOINTS_H_

#include <map>
#include <vector>

#include "server/layer_snapshot.h"
#include "tests/simulation/contribution_check.h"

namespace kronserve::simulation {

// A file is there once it is written, and not before: who dies while writing
// leaves nothing.
class SimulatedCheckpoints {
 public:
  struct File {
    server::LayerImage image;
    ContributionCheck::Lineage lineage;  // For the checks.
  };

  void Add(int layer, File file) { files_[layer].push_back(std::move(file)); }

  // The one with the highest (epoch, world version, closed_through), whoever
  // wrote it and when; null without any.
  const File* Newest(int layer) const;

 private:
  std::map<int, std::vector<File>> files_;
};

}  // namespace kronserve::simulation

#endif  // KRONSERVE_TESTS_SIMULATION_SIMULATED_CHECKPOINTS_H_
