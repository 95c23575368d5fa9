// Which rows each rank trains on at each step.
//
// Layer: worker. May include nothing else of this repository.

#ifndef KRONSERVE_WORKER_TRAINING_BATCHES_H_
#define KRONSERVE_WORKER_TRAINING_BATCHES_H_

#include <cstdint>
#include <vector>

namespace kronserve::worker {

// Rows [begin, end).
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// Part `part` of `range` cut into `parts`, in order; sizes differ by at most
// one. Used for ranks and for micro-batches alike.
RowRange PartOf(RowRange range, int64_t part, int64_t parts);

// The order in which training rows are used: each epoch a new permutation,
// drawn from (seed, epoch) alone, so that every rank has the same.
//
// Thread safety: none.
class BatchSchedule {
 public:
  // 1 <= batch <= rows. Rows that do not fill a batch wait for another epoch's
  // order.
  BatchSchedule(int64_t rows, int64_t batch, uint64_t seed);

  int64_t batch() const { return batch_; }
  int64_t steps_per_epoch() const { return rows_ / batch_; }
  int64_t EpochOf(int64_t step) const { return step / steps_per_epoch(); }

  // The [batch] row numbers of the global batch of `step` (from 0). Valid
  // until the next call.
  const int64_t* Rows(int64_t step);

 private:
  void Shuffle(int64_t epoch);

  const int64_t rows_;
  const int64_t batch_;
  const uint64_t seed_;
  int64_t shuffled_epoch_ = -1;
  std::vector<int64_t> order_;  // [rows], of shuffled_epoch_.
};

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_TRAINING_BATCHES_H_
