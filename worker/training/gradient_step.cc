#include "worker/training/gradient_step.h"

#include <algorithm>

#include "common/status_macros.h"

namespace kronserve::worker {

GradientStep::GradientStep(const TrainerParts& parts) : parts_(parts) {
  for (const Weights<float>* weights : parts.model->weights()) {
    gradient_size_ += weights->gradient.size();
  }
  sums_.resize(gradient_size_ + 2);
  float* next = sums_.data();
  for (const Weights<float>* weights : parts.model->weights()) {
    gradients_.emplace_back(next, weights->gradient.rows,
                            weights->gradient.cols);
    next += weights->gradient.size();
  }
}

absl::Status GradientStep::Compute(int64_t step, const int64_t* rows,
                                   int64_t batch, int64_t accumulation) {
  std::fill(sums_.begin(), sums_.end(), 0.0f);
  const Communicator* group = parts_.group;
  const RowRange mine = PartOf({0, batch}, group == nullptr ? 0 : group->rank(),
                               group == nullptr ? 1 : group->size());
  for (int64_t i = 0; i < accumulation; ++i) {
    const RowRange part = PartOf(mine, i, accumulation);
    KRONSERVE_RETURN_IF_ERROR(
        ComputePart(step, rows + part.begin, part.size(), batch));
  }
  const bool stop = parts_.stop != nullptr && parts_.stop->load();
  sums_[gradient_size_ + 1] = stop ? 1 : 0;
  return absl::OkStatus();
}

absl::Status GradientStep::ComputePart(int64_t step, const int64_t* rows,
                                       int64_t count, int64_t batch) {
  Reshape(count, parts_.dataset->image_size(), &inputs_);
  labels_.resize(count);
  CopyRows(*parts_.dataset, parts_.dataset->train, rows, inputs_.view(),
           labels_.data());
  parts_.model->Forward(inputs_.view());
  const double loss = parts_.model->Backward(labels_.data());
  const float weight = float(count) / float(batch);
  sums_[gradient_size_] += weight * float(loss);
  float* sum = sums_.data();
  for (const Weights<float>* weights : parts_.model->weights()) {
    for (const float value : weights->gradient.values) {
      *sum++ += weight * value;
    }
  }
  return FeedSession(step, count);
}

absl::Status GradientStep::FeedSession(int64_t step, int64_t loss_rows) {
  if (parts_.session == nullptr || !parts_.precondition) {
    return absl::OkStatus();
  }
  const auto& all = parts_.model->weights();
  for (int layer = 0; layer < int(all.size()); ++layer) {
    if (!parts_.session->NeedsStatistics(step, layer)) continue;
    const Weights<float>& weights = *all[layer];
    KRONSERVE_RETURN_IF_ERROR(
        weights.geometry.has_value()
            ? parts_.session->AccumulateConv(layer, *weights.geometry,
                                             weights.inputs,
                                             weights.hook_gradients, loss_rows)
            : parts_.session->AccumulateLinear(
                  layer, weights.inputs, weights.hook_gradients, loss_rows));
  }
  return absl::OkStatus();
}

absl::Status GradientStep::Average() {
  if (parts_.group == nullptr) return absl::OkStatus();
  return parts_.group->AllReduceSum(sums_.data(), sums_.size());
}

}  // namespace kronserve::worker
