#include "curvature/factor_solve.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "linalg/backend.h"
#include "linalg/matrix_view.h"

namespace kronserve::curvature {
namespace {

using ::kronserve::linalg::DenseKernels;
using ::kronserve::linalg::LinearAlgebra;
using ::kronserve::linalg::Matrix;
using ::kronserve::linalg::Transpose;

// A value that T cannot hold becomes infinite, which the checks then find.
template <typename T>
T NarrowValue(double value) {
  constexpr double kMax = std::numeric_limits<T>::max();
  if (std::abs(value) <= kMax || std::isnan(value)) {
    return static_cast<T>(value);
  }
  return std::copysign(std::numeric_limits<T>::infinity(),
                       static_cast<T>(value > 0 ? 1 : -1));
}

template <typename T, typename U>
std::vector<T> Narrow(std::vector<U> values) {
  if constexpr (std::is_same_v<T, U>) {
    return values;
  } else {
    std::vector<T> narrow(values.size());
    std::transform(values.begin(), values.end(), narrow.begin(),
                   NarrowValue<T>);
    return narrow;
  }
}

template <typename T, typename U>
Matrix<T> NarrowMatrix(Matrix<U> m) {
  Matrix<T> narrow;
  narrow.rows = m.rows;
  narrow.cols = m.cols;
  narrow.values = Narrow<T>(std::move(m.values));
  return narrow;
}

template <typename T>
bool IsFinite(const std::vector<T>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](T value) { return std::isfinite(value); });
}

// A fixed vector without structure that a wrong factor could hide behind:
// multiples of the golden ratio modulo 1, centred.
template <typename U>
Matrix<U> SampleVector(int64_t n) {
  Matrix<U> x(n, 1);
  for (int64_t i = 0; i < n; ++i) {
    const double multiple = 0.6180339887498949 * static_cast<double>(i + 1);
    x.values[i] = static_cast<U>(multiple - std::floor(multiple) - 0.5);
  }
  return x;
}

// Frobenius norm. Several running sums, since only a bound depends on it and a
// single one would wait for each addition.
template <typename U>
double Norm(const Matrix<U>& m) {
  constexpr size_t kSums = 16;
  double sums[kSums] = {};
  const size_t whole = m.values.size() / kSums * kSums;
  for (size_t i = 0; i < whole; i += kSums) {
    for (size_t k = 0; k < kSums; ++k) {
      const double value = m.values[i + k];
      sums[k] += value * value;
    }
  }
  for (size_t i = whole; i < m.values.size(); ++i) {
    sums[0] += static_cast<double>(m.values[i]) * m.values[i];
  }
  return std::sqrt(std::accumulate(sums, sums + kSums, 0.0));
}

// Checks B S B^T x = (M + gamma I) x for B = `factor` and S = diag(values), or
// the identity where `values` is null.
template <typename U>
absl::Status CheckResidual(DenseKernels<U>& kernels, const Matrix<U>& m,
                           double gamma, const Matrix<U>& factor,
                           const std::vector<U>* values) {
  const int64_t n = m.rows;
  const Matrix<U> x = SampleVector<U>(n);
  Matrix<U> inner(n, 1);
  Matrix<U> residual = x;
  kernels.Gemm(Transpose::kYes, Transpose::kNo, 1, factor.view(), x.view(), 0,
               inner.view());
  for (int64_t i = 0; values != nullptr && i < n; ++i) {
    inner.values[i] *= (*values)[i];
  }
  kernels.Gemm(Transpose::kNo, Transpose::kNo, 1, m.view(), x.view(), gamma,
               residual.view());
  kernels.Gemm(Transpose::kNo, Transpose::kNo, -1, factor.view(), inner.view(),
               1, residual.view());

  // Backward stable methods, and the products above, are off by a small
  // multiple of n eps |M|.
  const double size = static_cast<double>(n);
  const double bound = 16 * size * std::numeric_limits<U>::epsilon() *
                       (Norm(m) + gamma * std::sqrt(size)) * Norm(x);
  const double found = Norm(residual);
  if (found <= bound) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the solver's result misses its matrix [", n, ", ", n,
                   "]: residual ", found, ", allowed ", bound));
}

// An eigendecomposition in the precision of the rung, checked.
template <typename U>
absl::Status Decompose(LinearAlgebra<U>& tools, const Matrix<U>& m,
                       Matrix<U>* vectors, std::vector<U>* values) {
  *vectors = Matrix<U>(m.rows, m.rows);
  values->assign(m.rows, U{0});
  KRONSERVE_RETURN_IF_ERROR(
      tools.eigen->Decompose(m.view(), vectors->view(), values->data()));
  if (!IsFinite(*values)) {
    return absl::FailedPreconditionError("an eigenvalue is not finite");
  }
  return CheckResidual(*tools.kernels, m, 0, *vectors, values);
}

}  // namespace

template <typename U, typename T>
absl::Status SolveCholesky(LinearAlgebra<U>& tools, const Matrix<U>& m,
                           double gamma, Matrix<T>* lower) {
  Matrix<U> factor(m.rows, m.rows);
  KRONSERVE_RETURN_IF_ERROR(
      tools.spd->Factorize(m.view(), gamma, factor.view()));
  KRONSERVE_RETURN_IF_ERROR(
      CheckResidual<U>(*tools.kernels, m, gamma, factor, /*values=*/nullptr));
  *lower = NarrowMatrix<T>(std::move(factor));
  for (int64_t i = 0; i < lower->rows; ++i) {
    if ((*lower)(i, i) > 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("pivot ", i + 1, " of ", lower->rows, " is ",
                     (*lower)(i, i), " in working precision"));
  }
  if (IsFinite(lower->values)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the Cholesky factor is not finite in working precision");
}

template <typename U, typename T>
absl::Status SolveEigen(LinearAlgebra<U>& tools, const Matrix<U>& m,
                        Matrix<T>* vectors, std::vector<T>* values) {
  Matrix<U> basis;
  std::vector<U> spectrum;
  KRONSERVE_RETURN_IF_ERROR(Decompose(tools, m, &basis, &spectrum));
  *vectors = NarrowMatrix<T>(std::move(basis));
  *values = Narrow<T>(std::move(spectrum));
  if (!IsFinite(vectors->values) || !IsFinite(*values)) {
    return absl::FailedPreconditionError(
        "the eigendecomposition is not finite in working precision");
  }
  const double noise = std::max(0.0, static_cast<double>(values->back())) *
                       static_cast<double>(m.rows) *
                       std::numeric_limits<T>::epsilon();
  for (T& value : *values) {
    if (value <= noise) value = 0;
  }
  return absl::OkStatus();
}

absl::StatusOr<Matrix<double>> WithoutNegativeEigenvalues(
    LinearAlgebra<double>& tools, const Matrix<double>& m) {
  Matrix<double> basis;
  std::vector<double> spectrum;
  KRONSERVE_RETURN_IF_ERROR(Decompose(tools, m, &basis, &spectrum));
  // With B = Q sqrt(s) the product is B B^T.
  for (double& value : spectrum) value = std::sqrt(std::max(value, 0.0));
  for (int64_t row = 0; row < basis.rows; ++row) {
    for (int64_t col = 0; col < basis.cols; ++col) {
      basis(row, col) *= spectrum[col];
    }
  }
  Matrix<double> result(m.rows, m.rows);
  tools.kernels->Gemm(Transpose::kNo, Transpose::kYes, 1, basis.view(),
                      basis.view(), 0, result.view());
  return result;
}

#define KRONSERVE_INSTANTIATE(U, T)                                        \
  template absl::Status SolveCholesky(LinearAlgebra<U>&, const Matrix<U>&, \
                                      double, Matrix<T>*);                 \
  template absl::Status SolveEigen(LinearAlgebra<U>&, const Matrix<U>&,    \
                                   Matrix<T>*, std::vector<T>*);

KRONSERVE_INSTANTIATE(float, float)
KRONSERVE_INSTANTIATE(double, float)
KRONSERVE_INSTANTIATE(double, double)
#undef KRONSERVE_INSTANTIATE

}  // namespace kronserve::curvature
