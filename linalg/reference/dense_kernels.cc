// Portable DenseKernels. Clarity before speed.

#include "linalg/dense_kernels.h"

#include <cmath>
#include <cstdint>
#include <memory>

#include "linalg/input_checks.h"
#include "linalg/matrix_view.h"
#include "linalg/reference/factory.h"

namespace kronserve::linalg::reference {
namespace {

// beta * c, where c is not read when beta is 0: it may be uninitialised.
template <typename T>
double Scaled(double beta, const T& c) {
  return beta == 0 ? 0.0 : beta * c;
}

template <typename T>
class ReferenceDenseKernels final : public DenseKernels<T> {
 public:
  // NOLINTNEXTLINE(readability-function-size): the parameters of BLAS.
  void Gemm(Transpose transpose_a, Transpose transpose_b, double alpha,
            ConstMatrixView<T> a, ConstMatrixView<T> b, double beta,
            MatrixView<T> c) override {
    CheckGemmShapes<T>(transpose_a, transpose_b, a, b, c);
    const bool a_as_is = transpose_a == Transpose::kNo;
    const bool b_as_is = transpose_b == Transpose::kNo;
    const int64_t depth = a_as_is ? a.cols : a.rows;
    const auto product = [&](int64_t row, int64_t col) {
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k) {
        const double left = a_as_is ? a(row, k) : a(k, row);
        sum += left * (b_as_is ? b(k, col) : b(col, k));
      }
      return sum;
    };
    for (int64_t row = 0; row < c.rows; ++row) {
      for (int64_t col = 0; col < c.cols; ++col) {
        c(row, col) = static_cast<T>(alpha * product(row, col) +
                                     Scaled(beta, c(row, col)));
      }
    }
  }

  void SyrkUpper(double alpha, ConstMatrixView<T> x, double beta,
                 MatrixView<T> c) override {
    CheckSyrkShapes<T>(x, c);
    const auto product = [&](int64_t row, int64_t col) {
      double sum = 0;
      for (int64_t k = 0; k < x.rows; ++k) {
        sum += static_cast<double>(x(k, row)) * x(k, col);
      }
      return sum;
    };
    for (int64_t row = 0; row < c.rows; ++row) {
      for (int64_t col = row; col < c.cols; ++col) {
        c(row, col) = static_cast<T>(alpha * product(row, col) +
                                     Scaled(beta, c(row, col)));
      }
    }
  }

  double Dot(const T* a, const T* b, int64_t n) override {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
    return sum;
  }

  int64_t CountNonFinite(const T* a, int64_t n) override {
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) count += std::isfinite(a[i]) ? 0 : 1;
    return count;
  }
};

}  // namespace

template <typename T>
std::unique_ptr<DenseKernels<T>> CreateDenseKernels() {
  return std::make_unique<ReferenceDenseKernels<T>>();
}

template std::unique_ptr<DenseKernels<float>> CreateDenseKernels();
template std::unique_ptr<DenseKernels<double>> CreateDenseKernels();

}  // namespace kronserve::linalg::reference
