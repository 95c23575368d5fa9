// Eigendecomposition of dense symmetric matrices behind one interface.
//
// Layer: linalg. May include common/ and nothing else of this repository.
// Backends: as in linalg/spd_solver.h.

#ifndef KRONSERVE_LINALG_SYMMETRIC_EIGEN_H_
#define KRONSERVE_LINALG_SYMMETRIC_EIGEN_H_

#include "absl/status/status.h"
#include "linalg/matrix_view.h"

namespace kronserve::linalg {

// Computes M = Q diag(values) Q^T.
//
// Thread safety: none. One object serves one thread.
template <typename T>
class SymmetricEigen {
 public:
  virtual ~SymmetricEigen() = default;

  // Decomposes `m`.
  //
  //   m        [n, n], n >= 1. Only the lower triangle is read; not modified.
  //   vectors  [n, n], written: column j belongs to values[j]; orthonormal.
  //            The sign of a column is not defined.
  //   values   [n], written, ascending; tiny negative ones are left as found.
  //
  // Cost: about 9 n^3 flops.
  //
  // Errors:
  //   kInvalidArgument     as SpdSolver::Factorize(); the caller fixes the
  //                        call.
  //   kFailedPrecondition  the iteration did not converge; the caller may
  //                        retry in double.
  virtual absl::Status Decompose(ConstMatrixView<T> m, MatrixView<T> vectors,
                                 T* values) = 0;
};

}  // namespace kronserve::linalg

#endif  // KRONSERVE_LINALG_SYMMETRIC_EIGEN_H_
