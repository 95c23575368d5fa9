#include "worker/training/batches.h"

#include <numeric>
#include <utility>

#include "worker/training/random.h"

namespace kronserve::worker {

RowRange PartOf(RowRange range, int64_t part, int64_t parts) {
  return {range.begin + part * range.size() / parts,
          range.begin + (part + 1) * range.size() / parts};
}

BatchSchedule::BatchSchedule(int64_t rows, int64_t batch, uint64_t seed)
    : rows_(rows), batch_(batch), seed_(seed), order_(rows) {}

const int64_t* BatchSchedule::Rows(int64_t step) {
  const int64_t epoch = EpochOf(step);
  if (epoch != shuffled_epoch_) Shuffle(epoch);
  return order_.data() + (step % steps_per_epoch()) * batch_;
}

void BatchSchedule::Shuffle(int64_t epoch) {
  std::iota(order_.begin(), order_.end(), 0);
  RandomStream random(seed_, /*stream=*/1 + epoch);
  for (int64_t last = rows_ - 1; last > 0; --last) {
    std::swap(order_[last], order_[random.Below(last + 1)]);
  }
  shuffled_epoch_ = epoch;
}

}  // namespace kronserve::worker
