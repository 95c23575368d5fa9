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

template <typename T>
void UpdateAverage(FactorInit init, double factor_decay, int64_t k, int64_t d,
                   const std::vector<T>& batch, std::vector<T>* average) {
  const int64_t size = linalg::PackedSize(d);
  if (average->empty()) {
    average->assign(size, T{0});
    if (init == FactorInit::kIdentity) {
      for (int64_t i = 0; i < d; ++i) {
        (*average)[linalg::PackedIndex(d, i, i)] = 1;
      }
    }
  }
  KRONSERVE_CHECK(static_cast<int64_t>(batch.size()) == size &&
                      static_cast<int64_t>(average->size()) == size,
                  absl::StrCat("average of ", average->size(), " and batch of ",
                               batch.size(), " elements, a triangle of side ",
                               d, " has ", size));
  const double on_new = WeightOnNew(init, factor_decay, k);
  // In double: (1 - decay) of a small step must not be rounded away.
  for (int64_t i = 0; i < size; ++i) {
    (*average)[i] =
        static_cast<T>((1 - on_new) * (*average)[i] + on_new * batch[i]);
  }
}

template void UpdateAverage(FactorInit, double, int64_t, int64_t,
                            const std::vector<float>&, std::vector<float>*);
template void UpdateAverage(FactorInit, double, int64_t, int64_t,
                            const std::vector<double>&, std::vector<double>*);

}  // namespace kronserve::curvature
