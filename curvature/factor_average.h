// The running average of a factor.
//
// Layer: curvature. May include linalg/ and common/.
// Source: METHOD.md D2. `factor_decay` is the weight on the OLD value, as in
// kfac-pytorch (the DP-KFAC code has it the other way round under the same
// name).

#ifndef KRONSERVE_CURVATURE_FACTOR_AVERAGE_H_
#define KRONSERVE_CURVATURE_FACTOR_AVERAGE_H_

#include <cstdint>
#include <vector>

namespace kronserve::curvature {

enum class FactorInit { kWarm, kIdentity, kFirst };

// Weight on the new value at the k-th (from 1) merged round:
//   kWarm      max(1 / k, 1 - decay)
//   kIdentity  1 - decay
//   kFirst     1 at k = 1, then 1 - decay
double WeightOnNew(FactorInit init, double factor_decay, int64_t k);

// How a layer's averages move.
struct AverageRule {
  FactorInit init = FactorInit::kWarm;
  double factor_decay = 0.95;
};

// average := (1 - w) average + w batch, element by element.
//
//   k        this is the k-th (from 1) merged round.
//   average  packed [PackedSize(d)]; empty before the first round: then it
//            starts as the identity (kIdentity) or as zero (the others, whose
//            first weight is 1).
//   batch    packed, same size, already divided by its rows.
template <typename T>
void UpdateAverage(const AverageRule& rule, int64_t k, int64_t d,
                   const std::vector<T>& batch, std::vector<T>* average);

}  // namespace kronserve::curvature

#endif  // KRONSERVE_CURVATURE_FACTOR_AVERAGE_H_
