#include "curvature/preconditioner.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "curvature/damping.h"
#include "linalg/backend.h"
#include "linalg/matrix_view.h"

namespace kronserve::curvature {
namespace {

using ::kronserve::linalg::LinearAlgebra;
using ::kronserve::linalg::Matrix;
using ::kronserve::linalg::MatrixView;
using ::kronserve::linalg::Transpose;

template <typename T>
absl::Status CheckShapes(const Factorization<T>& factorization,
                         MatrixView<T> gradient) {
  const int64_t d_out = factorization.g.rows;
  const int64_t d_in = factorization.a.rows;
  if (gradient.rows == d_out && gradient.cols == d_in) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("gradient is [", gradient.rows, ", ", gradient.cols,
                   "], the factorisation is for [", d_out, ", ", d_in, "]"));
}

// What the product of two eigenvalues is divided by:
// (s_g + gamma_g) (s_a + gamma_a) + added.
struct Denominator {
  double gamma_a = 0;
  double gamma_g = 0;
  double added = 0;
};

Denominator MakeDenominator(DampingForm form, double pi, double damping) {
  if (form == DampingForm::kExact) return {0, 0, damping};
  const double root = std::sqrt(damping);
  return {pi * root, root / pi, 0};
}

// Divides the rotated gradient in place; returns the sum of what was divided
// times the quotient, which is <V, D>: a rotation keeps inner products.
template <typename T>
double DivideRotated(const Factorization<T>& factorization,
                     const Denominator& denominator, MatrixView<T> rotated) {
  double inner_product = 0;
  for (int64_t row = 0; row < rotated.rows; ++row) {
    const double g = factorization.values_g[row] + denominator.gamma_g;
    T* const values = rotated.data + row * rotated.cols;
    for (int64_t col = 0; col < rotated.cols; ++col) {
      const double a = factorization.values_a[col] + denominator.gamma_a;
      const double divisor = g * a + denominator.added;
      const double quotient = divisor > 0 ? values[col] / divisor : 0.0;
      inner_product += values[col] * quotient;
      values[col] = static_cast<T>(quotient);
    }
  }
  return inner_product;
}

template <typename T>
double ApplyEigen(LinearAlgebra<T>& tools,
                  const Factorization<T>& factorization, double damping,
                  MatrixView<T> gradient) {
  constexpr Transpose kNo = Transpose::kNo;
  constexpr Transpose kYes = Transpose::kYes;
  const auto q_a = factorization.a.view();
  const auto q_g = factorization.g.view();
  Matrix<T> half(gradient.rows, gradient.cols);
  tools.kernels->Gemm(kYes, kNo, 1, q_g, gradient, 0, half.view());
  tools.kernels->Gemm(kNo, kNo, 1, half.view(), q_a, 0, gradient);
  const double inner_product = DivideRotated(
      factorization,
      MakeDenominator(factorization.form, factorization.split.pi, damping),
      gradient);
  tools.kernels->Gemm(kNo, kNo, 1, q_g, gradient, 0, half.view());
  tools.kernels->Gemm(kNo, kYes, 1, half.view(), q_a, 0, gradient);
  return inner_product;
}

template <typename T>
absl::StatusOr<double> ApplyInverse(LinearAlgebra<T>& tools,
                                    const Factorization<T>& factorization,
                                    MatrixView<T> gradient) {
  const std::vector<T> before(gradient.data, gradient.data + gradient.size());
  KRONSERVE_RETURN_IF_ERROR(
      tools.spd->SolveLeft(factorization.g.view(), gradient));
  KRONSERVE_RETURN_IF_ERROR(
      tools.spd->SolveRight(factorization.a.view(), gradient));
  return tools.kernels->Dot(before.data(), gradient.data, gradient.size());
}

}  // namespace

template <typename T>
absl::StatusOr<double> Precondition(LinearAlgebra<T>& tools,
                                    const Factorization<T>& factorization,
                                    double damping, MatrixView<T> gradient) {
  KRONSERVE_RETURN_IF_ERROR(CheckShapes(factorization, gradient));
  if (!std::isfinite(damping) || damping < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("damping must be finite and >= 0, got ", damping));
  }
  double inner_product = 0;
  if (factorization.method == Method::kEigen) {
    inner_product = ApplyEigen(tools, factorization, damping, gradient);
  } else {
    KRONSERVE_ASSIGN_OR_RETURN(inner_product,
                               ApplyInverse(tools, factorization, gradient));
  }
  const int64_t bad =
      tools.kernels->CountNonFinite(gradient.data, gradient.size());
  if (bad > 0 || !std::isfinite(inner_product)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "preconditioned gradient has ", bad, " of ", gradient.size(),
        " entries that are not finite, inner product ", inner_product));
  }
  return inner_product;
}

template absl::StatusOr<double> Precondition(LinearAlgebra<float>&,
                                             const Factorization<float>&,
                                             double, MatrixView<float>);
template absl::StatusOr<double> Precondition(LinearAlgebra<double>&,
                                             const Factorization<double>&,
                                             double, MatrixView<double>);

}  // namespace kronserve::curvature
