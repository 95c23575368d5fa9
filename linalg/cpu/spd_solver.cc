// SpdSolver on LAPACK's potrf and BLAS's trsm.

#include "linalg/spd_solver.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "linalg/cpu/blas.h"
#include "linalg/cpu/factory.h"
#include "linalg/cpu/lapack_status.h"
#include "linalg/input_checks.h"
#include "linalg/matrix_view.h"

namespace kronserve::linalg::cpu {
namespace {

template <typename T>
class CpuSpdSolver final : public SpdSolver<T> {
 public:
  absl::Status Factorize(ConstMatrixView<T> m, double damping,
                         MatrixView<T> lower) override {
    // Before the elements are looked at: sizes that do not fit were never
    // allocated either.
    KRONSERVE_RETURN_IF_ERROR(CheckLapackSizes({m.rows, m.cols}));
    KRONSERVE_RETURN_IF_ERROR(CheckFactorizeCall<T>(m, damping, lower));
    const int64_t n = m.rows;
    for (int64_t row = 0; row < n; ++row) {
      const T* from = m.data + row * n;
      T* to = lower.data + row * n;
      std::copy(from, from + row, to);
      to[row] = static_cast<T>(from[row] + damping);
      std::fill(to + row + 1, to + n, T{0});
    }
    return CholeskyStatus(Potrf(static_cast<int>(n), lower.data), n, damping);
  }

  absl::Status SolveLeft(ConstMatrixView<T> lower, MatrixView<T> b) override {
    return Solve(CblasLeft, lower, b);
  }

  absl::Status SolveRight(ConstMatrixView<T> lower, MatrixView<T> b) override {
    return Solve(CblasRight, lower, b);
  }

 private:
  // Left: L^-T (L^-1 B). Right: (B L^-T) L^-1.
  absl::Status Solve(CBLAS_SIDE side, ConstMatrixView<T> lower,
                     MatrixView<T> b) {
    const bool left = side == CblasLeft;
    KRONSERVE_RETURN_IF_ERROR(
        CheckLapackSizes({lower.rows, lower.cols, b.rows, b.cols}));
    KRONSERVE_RETURN_IF_ERROR(CheckSolveCall<T>(lower, left ? b.rows : b.cols));
    if (b.rows == 0 || b.cols == 0) return absl::OkStatus();
    const int rows = static_cast<int>(b.rows);
    const int cols = static_cast<int>(b.cols);
    Trsm(side, left ? CblasNoTrans : CblasTrans, rows, cols, lower.data,
         b.data);
    Trsm(side, left ? CblasTrans : CblasNoTrans, rows, cols, lower.data,
         b.data);
    return absl::OkStatus();
  }
};

}  // namespace

template <typename T>
std::unique_ptr<SpdSolver<T>> CreateSpdSolver() {
  return std::make_unique<CpuSpdSolver<T>>();
}

template std::unique_ptr<SpdSolver<float>> CreateSpdSolver();
template std::unique_ptr<SpdSolver<double>> CreateSpdSolver();

}  // namespace kronserve::linalg::cpu
