// Bringing the statistics of a node's ranks together at their collectors.
//
// Layer: worker. May include placement/, curvature/ and lower.

#ifndef KRONSERVE_WORKER_FACTOR_EXCHANGE_H_
#define KRONSERVE_WORKER_FACTOR_EXCHANGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "curvature/layer_shape.h"
#include "linalg/dense_kernels.h"
#include "placement/delegates.h"
#include "worker/collective/communicator.h"
#include "worker/factor_accumulator.h"

namespace kronserve::worker {

// Adds the parts of several ranks, in their order, in float32. Ranks without
// data add nothing; a rank with non-finite values counts as one without data.
// Without any data the result says why: non-finite before no rows before
// unused.
LayerStatistics MergeStatistics(linalg::DenseKernels<float>& kernels,
                                std::vector<LayerStatistics> parts);

// One rank's part in the exchange: one Gather per collector of its node, with
// a layout fixed by the registered shapes, added in rank order. With
// factor_source one_rank nobody collects from others and nothing is sent.
//
// Thread safety: none.
// Lifetime:      `group` and `kernels` outlive it.
class FactorExchange {
 public:
  struct Node {
    std::vector<int> ranks;         // Of the job, ascending; this rank's node.
    int rank = 0;                   // This rank, of the job.
    Communicator* group = nullptr;  // Of `ranks`; may be null for one rank.
  };

  FactorExchange(std::vector<curvature::LayerShape> layers,
                 const placement::Delegates& delegates, Node node,
                 linalg::DenseKernels<float>* kernels);

  // Replaces `statistics` [layers] by the node's where this rank collects, and
  // by "unused" elsewhere. Every rank of the node calls it at every factor
  // step.
  //
  // Errors: the group's.
  absl::Status Run(std::vector<LayerStatistics>* statistics);

 private:
  struct Collector {
    int rank = 0;             // Of the job.
    int root = 0;             // Its position in the node.
    bool gathers = false;     // Others of the node send to it.
    std::vector<int> layers;  // That it collects, ascending.
  };

  absl::Status RunCollector(const Collector& collector,
                            const std::vector<LayerStatistics>& mine,
                            std::vector<LayerStatistics>* collected);
  size_t PartBytes(const Collector& collector) const;
  void Encode(const Collector& collector,
              const std::vector<LayerStatistics>& mine);
  std::vector<LayerStatistics> Decode(const Collector& collector,
                                      const char* part) const;

  const std::vector<curvature::LayerShape> layers_;
  const Node node_;
  linalg::DenseKernels<float>* const kernels_;
  std::vector<Collector> collectors_;  // Ascending by rank.
  std::vector<char> outgoing_;
  std::vector<char> gathered_;
};

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_FACTOR_EXCHANGE_H_
