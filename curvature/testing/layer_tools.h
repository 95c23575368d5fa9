// A backend's tools as Refresh() and Precondition() want them.
//
// Layer: curvature, tests only.

#ifndef KRONSERVE_CURVATURE_TESTING_LAYER_TOOLS_H_
#define KRONSERVE_CURVATURE_TESTING_LAYER_TOOLS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/status_macros.h"
#include "curvature/preconditioner.h"
#include "linalg/backend.h"
#include "linalg/matrix_view.h"

namespace kronserve::curvature::testing {

// V and what came with it.
template <typename T>
struct Preconditioned {
  linalg::Matrix<T> v;
  double inner_product = 0;
  Factorization<T> factorization;
};

template <typename T>
struct LayerTools {
  explicit LayerTools(linalg::Device device)
      : working(*linalg::CreateLinearAlgebra<T>(device)),
        wide(*linalg::CreateLinearAlgebra<double>(device)) {}

  RefreshTools<T> refresh() { return {&working, &wide}; }

  // Refresh() and Precondition() with one damping; `gradient` gives the sides.
  absl::StatusOr<Preconditioned<T>> Run(const std::vector<T>& average_a,
                                        const std::vector<T>& average_g,
                                        linalg::Matrix<T> gradient,
                                        const RefreshOptions& options) {
    Preconditioned<T> result;
    KRONSERVE_ASSIGN_OR_RETURN(result.factorization,
                               Refresh<T>(refresh(), {average_a, gradient.cols},
                                          {average_g, gradient.rows}, options));
    KRONSERVE_ASSIGN_OR_RETURN(
        result.inner_product,
        Precondition<T>(working, result.factorization, options.damping,
                        gradient.view()));
    result.v = std::move(gradient);
    return result;
  }

  linalg::LinearAlgebra<T> working;
  linalg::LinearAlgebra<double> wide;
};

// A row-major matrix from its values.
template <typename T>
linalg::Matrix<T> MakeMatrix(int64_t rows, int64_t cols,
                             std::vector<T> values) {
  linalg::Matrix<T> m;
  m.rows = rows;
  m.cols = cols;
  m.values = std::move(values);
  return m;
}

}  // namespace kronserve::curvature::testing

#endif  // KRONSERVE_CURVATURE_TESTING_LAYER_TOOLS_H_
