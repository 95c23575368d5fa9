// One factor on one rung of the refresh ladder: the solver call and the checks
// of what came out of it.
//
// Layer: curvature. May include linalg/ and common/. Used by
// curvature/refresh_ladder.cc only. U is the precision of the rung, T that of
// the result.

#ifndef KRONSERVE_CURVATURE_FACTOR_SOLVE_H_
#define KRONSERVE_CURVATURE_FACTOR_SOLVE_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "linalg/backend.h"
#include "linalg/matrix_view.h"

namespace kronserve::curvature {

// Lower Cholesky factor of `m` + `gamma` * I.
//
// Errors: as linalg::SpdSolver::Factorize(), and
//   kFailedPrecondition  a pivot is not above 0 or an entry not finite in T, or
//                        L L^T x is not (M + gamma I) x.
template <typename U, typename T>
absl::Status SolveCholesky(linalg::LinearAlgebra<U>& tools,
                           const linalg::Matrix<U>& m, double gamma,
                           linalg::Matrix<T>* lower);

// Eigenvectors in columns, eigenvalues ascending; those at or below eps d max
// (eps of T) are 0.
//
// Errors: as linalg::SymmetricEigen::Decompose(), and
//   kFailedPrecondition  an entry is not finite in T, or Q diag(s) Q^T x is not
//                        M x.
template <typename U, typename T>
absl::Status SolveEigen(linalg::LinearAlgebra<U>& tools,
                        const linalg::Matrix<U>& m, linalg::Matrix<T>* vectors,
                        std::vector<T>* values);

// Q max(s, 0) Q^T: the nearest matrix without negative eigenvalues.
//
// Errors: as SolveEigen().
absl::StatusOr<linalg::Matrix<double>> WithoutNegativeEigenvalues(
    linalg::LinearAlgebra<double>& tools, const linalg::Matrix<double>& m);

}  // namespace kronserve::curvature

#endif  // KRONSERVE_CURVATURE_FACTOR_SOLVE_H_
