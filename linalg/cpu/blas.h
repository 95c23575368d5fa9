// One name per BLAS and LAPACK routine for both element types.
//
// Layer: linalg, inside cpu/ only. Matrices are row-major; a row-major lower
// triangle is a column-major upper one, so LAPACK gets 'U' and nothing is
// transposed for it. The `_work` calls skip LAPACKE's own scan for NaN.

#ifndef KRONSERVE_LINALG_CPU_BLAS_H_
#define KRONSERVE_LINALG_CPU_BLAS_H_

#include <cblas.h>
#include <lapacke.h>

namespace kronserve::linalg::cpu {

// The parameters of BLAS and LAPACK themselves, so they are as many.
// NOLINTBEGIN(readability-function-size)

struct GemmShape {
  int rows, cols, depth;
  int lda, ldb, ldc;
};

inline void Gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, GemmShape s,
                 double alpha, const float* a, const float* b, double beta,
                 float* c) {
  cblas_sgemm(CblasRowMajor, ta, tb, s.rows, s.cols, s.depth,
              static_cast<float>(alpha), a, s.lda, b, s.ldb,
              static_cast<float>(beta), c, s.ldc);
}
inline void Gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, GemmShape s,
                 double alpha, const double* a, const double* b, double beta,
                 double* c) {
  cblas_dgemm(CblasRowMajor, ta, tb, s.rows, s.cols, s.depth, alpha, a, s.lda,
              b, s.ldb, beta, c, s.ldc);
}

// Upper triangle of C [n, n] from X [rows, n].
inline void SyrkUpper(int n, int rows, double alpha, const float* x,
                      double beta, float* c) {
  cblas_ssyrk(CblasRowMajor, CblasUpper, CblasTrans, n, rows,
              static_cast<float>(alpha), x, n, static_cast<float>(beta), c, n);
}
inline void SyrkUpper(int n, int rows, double alpha, const double* x,
                      double beta, double* c) {
  cblas_dsyrk(CblasRowMajor, CblasUpper, CblasTrans, n, rows, alpha, x, n, beta,
              c, n);
}

// Solves with the lower triangle L, of side `rows` (left) or `cols` (right).
inline void Trsm(CBLAS_SIDE side, CBLAS_TRANSPOSE transpose, int rows, int cols,
                 const float* lower, float* b) {
  cblas_strsm(CblasRowMajor, side, CblasLower, transpose, CblasNonUnit, rows,
              cols, 1, lower, side == CblasLeft ? rows : cols, b, cols);
}
inline void Trsm(CBLAS_SIDE side, CBLAS_TRANSPOSE transpose, int rows, int cols,
                 const double* lower, double* b) {
  cblas_dtrsm(CblasRowMajor, side, CblasLower, transpose, CblasNonUnit, rows,
              cols, 1, lower, side == CblasLeft ? rows : cols, b, cols);
}

// Row-major lower Cholesky factor in place.
inline int Potrf(int n, float* lower) {
  return LAPACKE_spotrf_work(LAPACK_COL_MAJOR, 'U', n, lower, n);
}
inline int Potrf(int n, double* lower) {
  return LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'U', n, lower, n);
}

// In: the row-major lower triangle. Out: eigenvectors in rows.
inline int Syevd(int n, float* a, float* values, float* work, int work_size,
                 int* iwork, int iwork_size) {
  return LAPACKE_ssyevd_work(LAPACK_COL_MAJOR, 'V', 'U', n, a, n, values, work,
                             work_size, iwork, iwork_size);
}
inline int Syevd(int n, double* a, double* values, double* work, int work_size,
                 int* iwork, int iwork_size) {
  return LAPACKE_dsyevd_work(LAPACK_COL_MAJOR, 'V', 'U', n, a, n, values, work,
                             work_size, iwork, iwork_size);
}

// NOLINTEND(readability-function-size)

}  // namespace kronserve::linalg::cpu

#endif  // KRONSERVE_LINALG_CPU_BLAS_H_
