#include "curvature/factor_average.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "linalg/packed_triangle.h"

namespace kronserve::curvature {

double WeightOnNew(FactorInit init, double factor_decay, int64_t k) {
  KRONSERVE_CHECK(k >= 1, absl::StrCat("merged rounds count from 1, got ", k));
  switch (init) {
    case FactorInit::kWarm:
      return std::max(1.0 / static_cast<double>(k), 1 - factor_decay);
    case FactorInit::kIdentity:
      return 1 - factor_decay;
    case FactorInit::kFirst:
      return k == 1 ? 1.0 : 1 - factor_decay;
  }
  return 1 - factor_decay;
}

namespace {

// What an average is before its first round.
template <typename T>
std::vector<T> StartOf(FactorInit init, int64_t d) {
  std::vector<T> start(linalg::PackedSize(d), T{0});
  if (init != FactorInit::kIdentity) return start;
  for (int64_t i = 0; i < d; ++i) start[linalg::PackedIndex(d, i, i)] = 1;
  return start;
}

}  // namespace

template <typename T>
void UpdateAverage(const AverageRule& rule, int64_t k, int64_t d,
                   const std::vector<T>& batch, std::vector<T>* average) {
  const int64_t size = linalg::PackedSize(d);
  if (average->empty()) *average = StartOf<T>(rule.init, d);
  KRONSERVE_CHECK(static_cast<int64_t>(batch.size()) == size &&
                      static_cast<int64_t>(average->size()) == size,
                  absl::StrCat("average of ", average->size(), " and batch of ",
                               batch.size(), " elements, a triangle of side ",
                               d, " has ", size));
  const double on_new = WeightOnNew(rule.init, rule.factor_decay, k);
  // In double: (1 - decay) of a small step must not be rounded away.
  for (int64_t i = 0; i < size; ++i) {
    (*average)[i] =
        static_cast<T>((1 - on_new) * (*average)[i] + on_new * batch[i]);
  }
}

template void UpdateAverage(const AverageRule&, int64_t, int64_t,
                            const std::vector<float>&, std::vector<float>*);
template void UpdateAverage(const AverageRule&, int64_t, int64_t,
                            const std::vector<double>&, std::vector<double>*);

}  // namespace kronserve::curvature
