#include "worker/factor_exchange.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "common/status_macros.h"
#include "linalg/packed_triangle.h"

namespace kronserve::worker {
namespace {

using ::kronserve::curvature::LayerShape;
using ::kronserve::linalg::PackedSize;

// What stands before the floats of a layer: body, then N and R of A and G.
constexpr int kHeadWords = 5;

size_t SumBytes(int64_t d) { return PackedSize(d) * sizeof(float); }

size_t LayerBytes(const LayerShape& shape) {
  return kHeadWords * sizeof(int64_t) + SumBytes(shape.d_in) +
         SumBytes(shape.d_out);
}

void PutSum(const curvature::FactorSum<float>& sum, int64_t d, char** to) {
  if (!sum.packed.empty()) {
    std::memcpy(*to, sum.packed.data(), SumBytes(d));
  } else {
    std::memset(*to, 0, SumBytes(d));
  }
  *to += SumBytes(d);
}

void GetSum(int64_t d, const char** from, curvature::FactorSum<float>* sum) {
  sum->packed.resize(PackedSize(d));
  std::memcpy(sum->packed.data(), *from, SumBytes(d));
  *from += SumBytes(d);
}

// Which reason stands for a node whose ranks have no data.
v1::ContributionBody WorseOf(v1::ContributionBody a, v1::ContributionBody b) {
  for (const auto body : {v1::CONTRIBUTION_BODY_EMPTY_NON_FINITE,
                          v1::CONTRIBUTION_BODY_EMPTY_NO_ROWS}) {
    if (a == body || b == body) return body;
  }
  return v1::CONTRIBUTION_BODY_EMPTY_UNUSED;
}

}  // namespace

LayerStatistics MergeStatistics(linalg::DenseKernels<float>& kernels,
                                std::vector<LayerStatistics> parts) {
  LayerStatistics merged;
  v1::ContributionBody empty = v1::CONTRIBUTION_BODY_EMPTY_UNUSED;
  for (LayerStatistics& part : parts) {
    if (part.body != v1::CONTRIBUTION_BODY_DATA) {
      empty = WorseOf(empty, part.body);
      continue;
    }
    if (merged.body != v1::CONTRIBUTION_BODY_DATA) {
      merged = std::move(part);
      continue;
    }
    curvature::AddFactorSum(part.input, &merged.input);
    curvature::AddFactorSum(part.output, &merged.output);
  }
  if (merged.body != v1::CONTRIBUTION_BODY_DATA) merged.body = empty;
  DropNonFinite(kernels, &merged);  // The sum of finite parts may overflow.
  return merged;
}

FactorExchange::FactorExchange(std::vector<LayerShape> layers,
                               const placement::Delegates& delegates, Node node,
                               linalg::DenseKernels<float>* kernels)
    : layers_(std::move(layers)), node_(std::move(node)), kernels_(kernels) {
  std::map<int, Collector> by_rank;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    std::set<int> collecting;
    for (const int sender : node_.ranks) {
      const int rank = delegates.collector[layer][sender];
      if (rank < 0) continue;
      collecting.insert(rank);
      if (sender != rank) by_rank[rank].gathers = true;
    }
    for (const int rank : collecting) {
      by_rank[rank].layers.push_back(static_cast<int>(layer));
    }
  }
  for (auto& [rank, collector] : by_rank) {
    const auto position =
        std::lower_bound(node_.ranks.begin(), node_.ranks.end(), rank);
    collector.rank = rank;
    collector.root = static_cast<int>(position - node_.ranks.begin());
    collectors_.push_back(std::move(collector));
  }
}

absl::Status FactorExchange::Run(std::vector<LayerStatistics>* statistics) {
  std::vector<LayerStatistics> collected(layers_.size());
  for (const Collector& collector : collectors_) {
    if (!collector.gathers) continue;
    KRONSERVE_RETURN_IF_ERROR(RunCollector(collector, *statistics, &collected));
  }
  for (const Collector& collector : collectors_) {
    if (collector.gathers || collector.rank != node_.rank) continue;
    for (const int layer : collector.layers) {
      collected[layer] = std::move((*statistics)[layer]);
    }
  }
  *statistics = std::move(collected);
  return absl::OkStatus();
}

absl::Status FactorExchange::RunCollector(
    const Collector& collector, const std::vector<LayerStatistics>& mine,
    std::vector<LayerStatistics>* collected) {
  const size_t bytes = PartBytes(collector);
  const bool here = collector.rank == node_.rank;
  Encode(collector, mine);
  if (here) gathered_.resize(bytes * node_.ranks.size());
  KRONSERVE_RETURN_IF_ERROR(
      node_.group->Gather(outgoing_.data(), bytes,
                          here ? gathered_.data() : nullptr, collector.root));
  if (!here) return absl::OkStatus();
  std::vector<std::vector<LayerStatistics>> parts;
  for (size_t i = 0; i < node_.ranks.size(); ++i) {
    parts.push_back(Decode(collector, gathered_.data() + i * bytes));
  }
  for (size_t i = 0; i < collector.layers.size(); ++i) {
    std::vector<LayerStatistics> of_layer;
    for (auto& part : parts) of_layer.push_back(std::move(part[i]));
    (*collected)[collector.layers[i]] =
        MergeStatistics(*kernels_, std::move(of_layer));
  }
  return absl::OkStatus();
}

size_t FactorExchange::PartBytes(const Collector& collector) const {
  size_t bytes = 0;
  for (const int layer : collector.layers) bytes += LayerBytes(layers_[layer]);
  return bytes;
}

void FactorExchange::Encode(const Collector& collector,
                            const std::vector<LayerStatistics>& mine) {
  outgoing_.resize(PartBytes(collector));
  char* to = outgoing_.data();
  for (const int layer : collector.layers) {
    const LayerStatistics& statistics = mine[layer];
    const int64_t head[kHeadWords] = {
        statistics.body, statistics.input.loss_rows, statistics.input.rows,
        statistics.output.loss_rows, statistics.output.rows};
    std::memcpy(to, head, sizeof(head));
    to += sizeof(head);
    PutSum(statistics.input, layers_[layer].d_in, &to);
    PutSum(statistics.output, layers_[layer].d_out, &to);
  }
}

std::vector<LayerStatistics> FactorExchange::Decode(const Collector& collector,
                                                    const char* part) const {
  std::vector<LayerStatistics> all(collector.layers.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const LayerShape& shape = layers_[collector.layers[i]];
    int64_t head[kHeadWords];
    std::memcpy(head, part, sizeof(head));
    all[i].body = static_cast<v1::ContributionBody>(head[0]);
    if (all[i].body != v1::CONTRIBUTION_BODY_DATA) {
      part += LayerBytes(shape);
      continue;
    }
    part += sizeof(head);
    all[i].input.loss_rows = head[1];
    all[i].input.rows = head[2];
    all[i].output.loss_rows = head[3];
    all[i].output.rows = head[4];
    GetSum(shape.d_in, &part, &all[i].input);
    GetSum(shape.d_out, &part, &all[i].output);
  }
  return all;
}

}  // namespace kronserve::worker
