// How many bytes a job takes on a server, predicted before anything is
// allocated.
//
// Layer: placement. May include common/ and proto/.
// The scheduler decides with it where a layer fits, the server whether it
// accepts; both get the same number. All arithmetic is in 64 bits and
// saturates: what cannot be counted never fits (PROTOCOL.md 9).

#ifndef KRONSERVE_PLACEMENT_MEMORY_MODEL_H_
#define KRONSERVE_PLACEMENT_MEMORY_MODEL_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "kronserve/v1/job.pb.h"

namespace kronserve::placement {

// What a sum becomes that does not fit 64 bits.
inline constexpr int64_t kUncountableBytes =
    std::numeric_limits<int64_t>::max();

// Both at least 0; saturate at kUncountableBytes.
int64_t AddBytes(int64_t a, int64_t b);
int64_t MultiplyBytes(int64_t a, int64_t b);

// What the bytes of a layer depend on; every number at least 1.
struct LayerMemory {
  int64_t d_in = 1;
  int64_t d_out = 1;
  // Contributions that a factor round of the layer waits for.
  int64_t contributors = 1;
  // Rounds that may be staged at once.
  int64_t open_rounds = 1;
  // Eigenvalues are kept beside the eigenvectors.
  bool eigen = false;
};

// `num_nodes`: nodes of the job's world.
LayerMemory DescribeLayerMemory(const v1::LayerSpec& layer,
                                const v1::JobOptions& options,
                                int64_t num_nodes);

// Bytes that the layer holds as long as the job lives, by purpose.
struct LayerBytes {
  // Packed float32 triangles of A and G.
  int64_t averages = 0;
  // Square float32 A and G, published and next.
  int64_t factorizations = 0;
  // Packed triangles of every open round and contributor.
  int64_t rounds = 0;
  // One gradient and one reply.
  int64_t gradients = 0;

  int64_t total() const {
    return AddBytes(AddBytes(averages, factorizations),
                    AddBytes(rounds, gradients));
  }
};
LayerBytes PredictLayer(const LayerMemory& layer);

// PredictLayer().total().
int64_t PredictLayerBytes(const LayerMemory& layer);

// Scratch of one refresh of the layer on the ladder's double rungs: square
// float64 A and G. Each refresh thread holds one at a time.
int64_t PredictWorkspaceBytes(const LayerMemory& layer);

// Chunks of calls in flight: one being read and one being written per rank.
int64_t PredictStagingBytes(int64_t num_ranks);

// Bytes of a job on a server that owns `layers` of it: the layers, one
// workspace of the largest per refresh thread, and staging. 0 without layers.
int64_t PredictJobBytes(const std::vector<LayerMemory>& layers,
                        int64_t refresh_threads, int64_t num_ranks);

}  // namespace kronserve::placement

#endif  // KRONSERVE_PLACEMENT_MEMORY_MODEL_H_
