// SymmetricEigen on LAPACK's syevd (divide and conquer).

#include "linalg/symmetric_eigen.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "linalg/cpu/blas.h"
#include "linalg/cpu/factory.h"
#include "linalg/cpu/lapack_status.h"
#include "linalg/input_checks.h"
#include "linalg/matrix_view.h"
#include "linalg/tiles.h"

namespace kronserve::linalg::cpu {
namespace {

// Square matrix := its transpose.
template <typename T>
void TransposeInPlace(MatrixView<T> m) {
  VisitBelowDiagonal(m.rows, [&](int64_t row, int64_t col) {
    std::swap(m(row, col), m(col, row));
  });
}

template <typename T>
class CpuSymmetricEigen final : public SymmetricEigen<T> {
 public:
  absl::Status Decompose(ConstMatrixView<T> m, MatrixView<T> vectors,
                         T* values) override {
    // Before the elements are looked at: sizes that do not fit were never
    // allocated either.
    const int64_t n = m.rows;
    KRONSERVE_RETURN_IF_ERROR(CheckEigenSide(n));
    KRONSERVE_RETURN_IF_ERROR(CheckDecomposeCall<T>(m, vectors));
    for (int64_t row = 0; row < n; ++row) {
      const T* from = m.data + row * n;
      T* to = vectors.data + row * n;
      std::copy(from, from + row + 1, to);
      std::fill(to + row + 1, to + n, T{0});
    }
    // Sized by formula: a workspace query answers in T, and a float cannot
    // hold every such size.
    work_.resize(EigenWorkSize(n));
    iwork_.resize(3 + 5 * n);
    const int info = Syevd(static_cast<int>(n), vectors.data, values,
                           work_.data(), static_cast<int>(work_.size()),
                           iwork_.data(), static_cast<int>(iwork_.size()));
    KRONSERVE_RETURN_IF_ERROR(EigenStatus(info, n));
    TransposeInPlace(vectors);
    return absl::OkStatus();
  }

 private:
  std::vector<T> work_;
  std::vector<int> iwork_;
};

}  // namespace

template <typename T>
std::unique_ptr<SymmetricEigen<T>> CreateSymmetricEigen() {
  return std::make_unique<CpuSymmetricEigen<T>>();
}

template std::unique_ptr<SymmetricEigen<float>> CreateSymmetricEigen();
template std::unique_ptr<SymmetricEigen<double>> CreateSymmetricEigen();

}  // namespace kronserve::linalg::cpu
