#include "worker/training/evaluation.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "common/status_macros.h"
#include "worker/training/batches.h"
#include "worker/training/loss.h"

namespace kronserve::worker {
namespace {

constexpr int64_t kChunkRows = 500;

}  // namespace

absl::StatusOr<Evaluation> Evaluate(const Dataset& dataset, Model<float>* model,
                                    Communicator* group) {
  const RowRange mine =
      PartOf({0, dataset.test.rows()}, group == nullptr ? 0 : group->rank(),
             group == nullptr ? 1 : group->size());
  std::vector<int64_t> rows(kChunkRows);
  std::vector<uint8_t> labels(kChunkRows);
  linalg::Matrix<float> inputs;
  int64_t correct = 0;
  double loss = 0;
  for (int64_t begin = mine.begin; begin < mine.end; begin += kChunkRows) {
    const int64_t count = std::min(kChunkRows, mine.end - begin);
    std::iota(rows.begin(), rows.begin() + count, begin);
    Reshape(count, dataset.image_size(), &inputs);
    CopyRows(dataset, dataset.test, rows.data(), inputs.view(), labels.data());
    const auto logits = model->Forward(inputs.view());
    correct += CountCorrect(logits, labels.data());
    loss +=
        double(count) * SoftmaxCrossEntropy<float>(logits, labels.data(), {});
  }
  float sums[] = {float(correct), float(loss)};
  if (group != nullptr) {
    KRONSERVE_RETURN_IF_ERROR(group->AllReduceSum(sums, 2));
  }
  const double total = double(dataset.test.rows());
  return Evaluation{sums[1] / total, sums[0] / total};
}

}  // namespace kronserve::worker
