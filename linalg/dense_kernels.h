// Matrix products behind one interface.
//
// Layer: linalg. May include common/ and nothing else of this repository.
// Backends: as in linalg/spd_solver.h.

#ifndef KRONSERVE_LINALG_DENSE_KERNELS_H_
#define KRONSERVE_LINALG_DENSE_KERNELS_H_

#include "linalg/matrix_view.h"

namespace kronserve::linalg {

enum class Transpose { kNo, kYes };

// The products that factors, preconditioning and the native trainer need.
//
// Shapes that do not fit are a bug of the caller and end the process (CHECK
// style); nothing here depends on data from outside.
//
// Thread safety: thread-safe; the calling thread does the work.
template <typename T>
class DenseKernels {
 public:
  virtual ~DenseKernels() = default;

  // C := alpha op(A) op(B) + beta C; C is not read when beta is 0.
  //
  // Cost: 2 m n k flops.
  virtual void Gemm(Transpose transpose_a, Transpose transpose_b, double alpha,
                    ConstMatrixView<T> a, ConstMatrixView<T> b, double beta,
                    MatrixView<T> c) = 0;

  // Upper triangle of C := alpha X^T X + beta C; C is not read when beta is 0.
  //
  //   x  [rows, n]; rows may be 0.
  //   c  [n, n]; the strict lower triangle is left as it is.
  //
  // Cost: rows n^2 flops, half of a Gemm().
  virtual void SyrkUpper(double alpha, ConstMatrixView<T> x, double beta,
                         MatrixView<T> c) = 0;

  // Sum of a[i] b[i] over `n` elements, accumulated in double in index order.
  virtual double Dot(const T* a, const T* b, int64_t n) = 0;

  // Number of elements that are NaN or infinite.
  virtual int64_t CountNonFinite(const T* a, int64_t n) = 0;
};

}  // namespace kronserve::linalg

#endif  // KRONSERVE_LINALG_DENSE_KERNELS_H_
