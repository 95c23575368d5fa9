#include "placement/memory_model.h"

#include <algorithm>

namespace kronserve::placement {
namespace {

constexpr int64_t kFloatBytes = 4;
constexpr int64_t kDoubleBytes = 8;
constexpr int64_t kChunkBytes = int64_t{1} << 20;

int64_t SquareElements(const LayerMemory& layer) {
  return AddBytes(MultiplyBytes(layer.d_in, layer.d_in),
                  MultiplyBytes(layer.d_out, layer.d_out));
}

// Elements of both packed triangles: (square + diagonal) / 2.
int64_t PackedElements(const LayerMemory& layer) {
  const int64_t doubled =
      AddBytes(SquareElements(layer), AddBytes(layer.d_in, layer.d_out));
  return doubled == kUncountableBytes ? doubled : doubled / 2;
}

}  // namespace

int64_t AddBytes(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kUncountableBytes : sum;
}

int64_t MultiplyBytes(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kUncountableBytes : product;
}

LayerMemory DescribeLayerMemory(const v1::LayerSpec& layer,
                                const v1::JobOptions& options,
                                int64_t num_nodes) {
  LayerMemory memory;
  memory.d_in = layer.d_in();
  memory.d_out = layer.d_out();
  memory.contributors =
      options.factor_source() == v1::FACTOR_SOURCE_ALL ? num_nodes : 1;
  memory.open_rounds = options.max_open_rounds();
  memory.eigen = options.method() == v1::COMPUTE_METHOD_EIGEN;
  return memory;
}

LayerBytes PredictLayer(const LayerMemory& layer) {
  LayerBytes bytes;
  bytes.averages = MultiplyBytes(PackedElements(layer), kFloatBytes);
  int64_t factorization = SquareElements(layer);
  if (layer.eigen) {
    factorization = AddBytes(factorization, AddBytes(layer.d_in, layer.d_out));
  }
  bytes.factorizations = MultiplyBytes(factorization, 2 * kFloatBytes);
  bytes.rounds = MultiplyBytes(
      bytes.averages, MultiplyBytes(layer.open_rounds, layer.contributors));
  bytes.gradients =
      MultiplyBytes(MultiplyBytes(layer.d_in, layer.d_out), 2 * kFloatBytes);
  return bytes;
}

int64_t PredictLayerBytes(const LayerMemory& layer) {
  return PredictLayer(layer).total();
}

int64_t PredictWorkspaceBytes(const LayerMemory& layer) {
  return MultiplyBytes(SquareElements(layer), kDoubleBytes);
}

int64_t PredictStagingBytes(int64_t num_ranks) {
  return MultiplyBytes(num_ranks, 2 * kChunkBytes);
}

int64_t PredictJobBytes(const std::vector<LayerMemory>& layers,
                        int64_t refresh_threads, int64_t num_ranks) {
  if (layers.empty()) return 0;
  int64_t total = PredictStagingBytes(num_ranks);
  int64_t workspace = 0;
  for (const LayerMemory& layer : layers) {
    total = AddBytes(total, PredictLayerBytes(layer));
    workspace = std::max(workspace, PredictWorkspaceBytes(layer));
  }
  return AddBytes(total, MultiplyBytes(workspace, refresh_threads));
}

}  // namespace kronserve::placement
