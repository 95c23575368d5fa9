#include "curvature/refresh_policy.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace kronserve::curvature {

bool IsFactorStep(const RefreshIntervals& intervals, int64_t step) {
  return step % intervals.factor_update_steps == 0;
}

int64_t LastFactorStep(const RefreshIntervals& intervals, int64_t step) {
  return step - step % intervals.factor_update_steps;
}

std::vector<int64_t> RefreshPhases(const RefreshIntervals& intervals,
                                   const std::vector<double>& refresh_costs) {
  const int64_t num_layers = static_cast<int64_t>(refresh_costs.size());
  std::vector<int64_t> phases(num_layers, 0);
  if (intervals.schedule == RefreshSchedule::kAligned) return phases;

  std::vector<int64_t> heaviest_first(num_layers);
  std::iota(heaviest_first.begin(), heaviest_first.end(), int64_t{0});
  std::stable_sort(heaviest_first.begin(), heaviest_first.end(),
                   [&](int64_t a, int64_t b) {
                     return refresh_costs[a] > refresh_costs[b];
                   });
  // With a cost above 0 per layer no phase beyond the number of layers can be
  // the first one with the least, however long the interval is.
  std::vector<double> load(std::min(intervals.inv_update_steps, num_layers));
  for (const int64_t layer : heaviest_first) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += refresh_costs[layer];
    phases[layer] = least - load.begin();
  }
  return phases;
}

int64_t DueStep(const RefreshIntervals& intervals, int64_t phase,
                int64_t first_step, int64_t step) {
  if (step < first_step) return -1;
  const int64_t interval = intervals.inv_update_steps;
  const int64_t since = ((step - phase) % interval + interval) % interval;
  return std::max(step - since, first_step);
}

}  // namespace kronserve::curvature
