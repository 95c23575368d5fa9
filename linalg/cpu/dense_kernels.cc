// DenseKernels on OpenBLAS.

#include "linalg/dense_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "linalg/cpu/blas.h"
#include "linalg/cpu/factory.h"
#include "linalg/input_checks.h"
#include "linalg/matrix_view.h"

namespace kronserve::linalg::cpu {
namespace {

CBLAS_TRANSPOSE ToBlas(Transpose transpose) {
  return transpose == Transpose::kYes ? CblasTrans : CblasNoTrans;
}

// A size as BLAS takes it.
int BlasSize(int64_t size) {
  KRONSERVE_CHECK(size >= 0 && size <= std::numeric_limits<int32_t>::max(),
                  absl::StrCat("size ", size, " does not fit a 32-bit BLAS"));
  return static_cast<int>(size);
}

// Columns as leading dimension, which BLAS wants to be at least 1.
int Leading(int64_t cols) { return std::max(1, BlasSize(cols)); }

template <typename T>
class CpuDenseKernels final : public DenseKernels<T> {
 public:
  // NOLINTNEXTLINE(readability-function-size): the parameters of BLAS.
  void Gemm(Transpose transpose_a, Transpose transpose_b, double alpha,
            ConstMatrixView<T> a, ConstMatrixView<T> b, double beta,
            MatrixView<T> c) override {
    CheckGemmShapes<T>(transpose_a, transpose_b, a, b, c);
    if (c.rows == 0 || c.cols == 0) return;
    GemmShape shape;
    shape.rows = BlasSize(c.rows);
    shape.cols = BlasSize(c.cols);
    shape.depth = BlasSize(transpose_a == Transpose::kNo ? a.cols : a.rows);
    shape.lda = Leading(a.cols);
    shape.ldb = Leading(b.cols);
    shape.ldc = Leading(c.cols);
    cpu::Gemm(ToBlas(transpose_a), ToBlas(transpose_b), shape, alpha, a.data,
              b.data, beta, c.data);
  }

  void SyrkUpper(double alpha, ConstMatrixView<T> x, double beta,
                 MatrixView<T> c) override {
    CheckSyrkShapes<T>(x, c);
    if (c.rows == 0) return;
    cpu::SyrkUpper(BlasSize(c.rows), BlasSize(x.rows), alpha, x.data, beta,
                   c.data);
  }

  double Dot(const T* a, const T* b, int64_t n) override {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
    return sum;
  }

  int64_t CountNonFinite(const T* a, int64_t n) override {
    // As a comparison, which compilers turn into vector code; false for NaN.
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) {
      count += !(std::abs(a[i]) <= std::numeric_limits<T>::max());
    }
    return count;
  }
};

}  // namespace

void UseOneBlasThread() {
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });
}

template <typename T>
std::unique_ptr<DenseKernels<T>> CreateDenseKernels() {
  return std::make_unique<CpuDenseKernels<T>>();
}

template std::unique_ptr<DenseKernels<float>> CreateDenseKernels();
template std::unique_ptr<DenseKernels<double>> CreateDenseKernels();

}  // namespace kronserve::linalg::cpu
