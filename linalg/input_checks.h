// The checks that every backend makes before it computes, so that all refuse
// the same calls in the same words.
//
// Layer: linalg. May include common/ and nothing else of this repository.

#ifndef KRONSERVE_LINALG_INPUT_CHECKS_H_
#define KRONSERVE_LINALG_INPUT_CHECKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "linalg/dense_kernels.h"
#include "linalg/matrix_view.h"

namespace kronserve::linalg {

// kInvalidArgument unless `m` is square and not empty. Reads no element.
template <typename T>
absl::Status CheckSquareShape(ConstMatrixView<T> m);

// Of SpdSolver::Factorize(): shapes, damping, a finite lower triangle, and a
// damped diagonal that T can hold.
template <typename T>
absl::Status CheckFactorizeCall(ConstMatrixView<T> m, double damping,
                                MatrixView<T> lower);

// Of SymmetricEigen::Decompose(): shapes and a finite lower triangle.
template <typename T>
absl::Status CheckDecomposeCall(ConstMatrixView<T> m, MatrixView<T> vectors);

// Of SpdSolver::SolveLeft() and SolveRight(): `b_side` is the number of rows
// or columns of the right-hand side that must be the side of `lower`.
template <typename T>
absl::Status CheckSolveCall(ConstMatrixView<T> lower, int64_t b_side);

// Ends the process unless the shapes of a Gemm() fit.
template <typename T>
void CheckGemmShapes(Transpose transpose_a, Transpose transpose_b,
                     ConstMatrixView<T> a, ConstMatrixView<T> b,
                     MatrixView<T> c);

// Ends the process unless the shapes of a SyrkUpper() fit.
template <typename T>
void CheckSyrkShapes(ConstMatrixView<T> x, MatrixView<T> c);

}  // namespace kronserve::linalg

#endif  // KRONSERVE_LINALG_INPUT_CHECKS_H_
