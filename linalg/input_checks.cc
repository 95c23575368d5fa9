#include "linalg/input_checks.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "linalg/matrix_view.h"

namespace kronserve::linalg {
namespace {

template <typename T>
std::string Shape(MatrixView<T> m) {
  return absl::StrCat("[", m.rows, ", ", m.cols, "]");
}

template <typename T>
absl::Status CheckFiniteLower(ConstMatrixView<T> m) {
  for (int64_t row = 0; row < m.rows; ++row) {
    for (int64_t col = 0; col <= row; ++col) {
      if (std::isfinite(m(row, col))) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "non-finite matrix entry at (", row, ", ", col, ") of ", Shape(m)));
    }
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status CheckSameShape(const char* name, MatrixView<T> output,
                            ConstMatrixView<T> m) {
  if (output.rows == m.rows && output.cols == m.cols) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", Shape(output), ", the matrix is ", Shape(m)));
}

}  // namespace

template <typename T>
absl::Status CheckSquareShape(ConstMatrixView<T> m) {
  if (m.rows >= 1 && m.rows == m.cols) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("matrix must be square and not empty, got ", Shape(m)));
}

template <typename T>
absl::Status CheckFactorizeCall(ConstMatrixView<T> m, double damping,
                                MatrixView<T> lower) {
  KRONSERVE_RETURN_IF_ERROR(CheckSquareShape<T>(m));
  KRONSERVE_RETURN_IF_ERROR(CheckSameShape<T>("the factor", lower, m));
  if (!std::isfinite(damping) || damping < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("damping must be finite and >= 0, got ", damping));
  }
  KRONSERVE_RETURN_IF_ERROR(CheckFiniteLower<T>(m));
  for (int64_t i = 0; i < m.rows; ++i) {
    if (m(i, i) + damping <= std::numeric_limits<T>::max()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("diagonal entry ", i, " (", m(i, i), ") plus damping ",
                     damping, " is too large for the element type"));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status CheckDecomposeCall(ConstMatrixView<T> m, MatrixView<T> vectors) {
  KRONSERVE_RETURN_IF_ERROR(CheckSquareShape<T>(m));
  KRONSERVE_RETURN_IF_ERROR(
      CheckSameShape<T>("the eigenvector matrix", vectors, m));
  return CheckFiniteLower<T>(m);
}

template <typename T>
absl::Status CheckSolveCall(ConstMatrixView<T> lower, int64_t b_side) {
  KRONSERVE_RETURN_IF_ERROR(CheckSquareShape<T>(lower));
  if (b_side == lower.rows) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "right-hand side has side ", b_side, ", the factor is ", Shape(lower)));
}

template <typename T>
void CheckGemmShapes(Transpose transpose_a, Transpose transpose_b,
                     ConstMatrixView<T> a, ConstMatrixView<T> b,
                     MatrixView<T> c) {
  const bool a_as_is = transpose_a == Transpose::kNo;
  const bool b_as_is = transpose_b == Transpose::kNo;
  const bool fits = (a_as_is ? a.rows : a.cols) == c.rows &&
                    (b_as_is ? b.cols : b.rows) == c.cols &&
                    (a_as_is ? a.cols : a.rows) == (b_as_is ? b.rows : b.cols);
  KRONSERVE_CHECK(
      fits, absl::StrCat("Gemm of ", Shape(a), a_as_is ? " by " : "^T by ",
                         Shape(b), b_as_is ? " into " : "^T into ", Shape(c)));
}

template <typename T>
void CheckSyrkShapes(ConstMatrixView<T> x, MatrixView<T> c) {
  KRONSERVE_CHECK(c.rows == c.cols && c.rows == x.cols,
                  absl::StrCat("SyrkUpper of ", Shape(x), " into ", Shape(c)));
}

#define KRONSERVE_INSTANTIATE(T)                                             \
  template absl::Status CheckSquareShape<T>(ConstMatrixView<T>);             \
  template absl::Status CheckFactorizeCall<T>(ConstMatrixView<T>, double,    \
                                              MatrixView<T>);                \
  template absl::Status CheckDecomposeCall<T>(ConstMatrixView<T>,            \
                                              MatrixView<T>);                \
  template absl::Status CheckSolveCall<T>(ConstMatrixView<T>, int64_t);      \
  template void CheckGemmShapes<T>(Transpose, Transpose, ConstMatrixView<T>, \
                                   ConstMatrixView<T>, MatrixView<T>);       \
  template void CheckSyrkShapes<T>(ConstMatrixView<T>, MatrixView<T>);

KRONSERVE_INSTANTIATE(float)
KRONSERVE_INSTANTIATE(double)
#undef KRONSERVE_INSTANTIATE

}  // namespace kronserve::linalg
