// Portable SpdSolver. Clarity before speed.

#include "linalg/spd_solver.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "linalg/input_checks.h"
#include "linalg/matrix_view.h"
#include "linalg/reference/factory.h"

namespace kronserve::linalg::reference {
namespace {

template <typename T>
class ReferenceSpdSolver final : public SpdSolver<T> {
 public:
  absl::Status Factorize(ConstMatrixView<T> m, double damping,
                         MatrixView<T> lower) override {
    KRONSERVE_RETURN_IF_ERROR(CheckFactorizeCall<T>(m, damping, lower));
    const int64_t n = m.rows;
    factor_.assign(n * n, 0.0);
    for (int64_t col = 0; col < n; ++col) {
      const double pivot = m(col, col) + damping - RowDot(col, col, col, n);
      if (!(pivot > 0)) {
        return absl::FailedPreconditionError(
            absl::StrCat("not positive definite: leading minor of order ",
                         col + 1, " of ", n, " failed at damping ", damping));
      }
      const double diagonal = std::sqrt(pivot);
      factor_[col * n + col] = diagonal;
      for (int64_t row = col + 1; row < n; ++row) {
        factor_[row * n + col] =
            (m(row, col) - RowDot(row, col, col, n)) / diagonal;
      }
    }
    for (int64_t i = 0; i < n * n; ++i) {
      lower.data[i] = static_cast<T>(factor_[i]);
    }
    return absl::OkStatus();
  }

  absl::Status SolveLeft(ConstMatrixView<T> lower, MatrixView<T> b) override {
    KRONSERVE_RETURN_IF_ERROR(CheckSolveCall<T>(lower, b.rows));
    for (int64_t col = 0; col < b.cols; ++col) {
      SolveVector(lower, b.data + col, b.cols);
    }
    return absl::OkStatus();
  }

  absl::Status SolveRight(ConstMatrixView<T> lower, MatrixView<T> b) override {
    KRONSERVE_RETURN_IF_ERROR(CheckSolveCall<T>(lower, b.cols));
    for (int64_t row = 0; row < b.rows; ++row) {
      SolveVector(lower, b.data + row * b.cols, 1);
    }
    return absl::OkStatus();
  }

 private:
  // Inner product of the first `length` entries of rows `i` and `j` of L.
  double RowDot(int64_t i, int64_t j, int64_t length, int64_t n) const {
    double sum = 0;
    for (int64_t k = 0; k < length; ++k) {
      sum += factor_[i * n + k] * factor_[j * n + k];
    }
    return sum;
  }

  // Solves L L^T x = b for one vector whose entries stand `stride` apart.
  void SolveVector(ConstMatrixView<T> lower, T* b, int64_t stride) {
    const int64_t n = lower.rows;
    vector_.resize(n);
    for (int64_t i = 0; i < n; ++i) {
      double value = b[i * stride];
      for (int64_t k = 0; k < i; ++k) value -= lower(i, k) * vector_[k];
      vector_[i] = value / lower(i, i);
    }
    for (int64_t i = n - 1; i >= 0; --i) {
      double value = vector_[i];
      for (int64_t k = i + 1; k < n; ++k) value -= lower(k, i) * vector_[k];
      vector_[i] = value / lower(i, i);
      b[i * stride] = static_cast<T>(vector_[i]);
    }
  }

  std::vector<double> factor_;  // [n, n], L before rounding to T.
  std::vector<double> vector_;  // [n], scratch of SolveVector().
};

}  // namespace

template <typename T>
std::unique_ptr<SpdSolver<T>> CreateSpdSolver() {
  return std::make_unique<ReferenceSpdSolver<T>>();
}

template std::unique_ptr<SpdSolver<float>> CreateSpdSolver();
template std::unique_ptr<SpdSolver<double>> CreateSpdSolver();

}  // namespace kronserve::linalg::reference
