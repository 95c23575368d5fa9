// Dense symmetric positive-definite (SPD) solves behind one interface.
//
// Layer: linalg. May include common/ and nothing else of this repository.
// Backends: reference/ (plain loops in double, the oracle of the tests) and
// cpu/ (OpenBLAS + LAPACK). Callers get one from linalg/backend.h and never
// name a backend themselves.

#ifndef KRONSERVE_LINALG_SPD_SOLVER_H_
#define KRONSERVE_LINALG_SPD_SOLVER_H_

#include "absl/status/status.h"
#include "linalg/matrix_view.h"

namespace kronserve::linalg {

// Factorises M + damping * I = L * L^T and solves against L.
//
// The factor belongs to the caller, so that it can be published to readers
// while the solver works on the next one.
//
// Thread safety: none. One solver serves one thread.
// Reuse:         workspace is kept between calls, so keep the solver.
template <typename T>
class SpdSolver {
 public:
  virtual ~SpdSolver() = default;

  // Computes the lower Cholesky factor of `m` + `damping` * I.
  //
  //   m        [n, n], n >= 1. Only the lower triangle is read; not modified.
  //   damping  finite, >= 0, in the unit of the diagonal of `m`.
  //   lower    [n, n], written; its strict upper triangle becomes zero. May
  //            not overlap `m`. Undefined after an error.
  //
  // Cost: n^3 / 3 flops.
  //
  // Errors:
  //   kInvalidArgument     `m` is empty or not square, `lower` has another
  //                        shape, the lower triangle of `m` holds a non-finite
  //                        value, or `damping` is negative or not finite; the
  //                        caller fixes the call.
  //   kFailedPrecondition  not positive definite at this damping. The message
  //                        names the order (1-based) of the first leading
  //                        minor that failed; the caller may raise `damping`.
  //
  // Source: Golub & Van Loan, "Matrix Computations", 4th ed., Section 4.2.
  virtual absl::Status Factorize(ConstMatrixView<T> m, double damping,
                                 MatrixView<T> lower) = 0;

  // B := (L L^T)^-1 B.
  //
  //   lower  [n, n] from Factorize().
  //   b      [n, k], k >= 0.
  //
  // Cost: 2 n^2 k flops.
  //
  // Errors:
  //   kInvalidArgument  `lower` is empty or not square, or `b` does not have n
  //                     rows. `b` is unchanged.
  virtual absl::Status SolveLeft(ConstMatrixView<T> lower, MatrixView<T> b) = 0;

  // B := B (L L^T)^-1; `b` is [k, n]. As SolveLeft().
  virtual absl::Status SolveRight(ConstMatrixView<T> lower,
                                  MatrixView<T> b) = 0;
};

}  // namespace kronserve::linalg

#endif  // KRONSERVE_LINALG_SPD_SOLVER_H_
