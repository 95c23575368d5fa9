// Refreshing a layer's factorisation and applying it to gradients.
//
// Layer: curvature. May include linalg/ and common/.
// V = G^-1 D A^-1 with A [d_in, d_in] the input factor and G [d_out, d_out]
// the output-gradient factor; A, G, D, V, Q as in the K-FAC papers.
// Source: METHOD.md B4, B5, D3, D4; PROTOCOL.md 7 (the ladder).

#ifndef KRONSERVE_CURVATURE_PRECONDITIONER_H_
#define KRONSERVE_CURVATURE_PRECONDITIONER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "curvature/damping.h"
#include "linalg/backend.h"
#include "linalg/matrix_view.h"

namespace kronserve::curvature {

enum class Method { kInverse, kEigen };

// How a refresh succeeded, from best to worst.
enum class Rung { kDirect, kDouble, kEigen, kMoreDamping };

// The published result of a refresh. Immutable once published.
template <typename T>
struct Factorization {
  Method method = Method::kInverse;
  DampingForm form = DampingForm::kFactored;
  Rung rung = Rung::kDirect;
  double damping = 0;     // Effective: what was really used.
  FactoredDamping split;  // Of `damping`; its pi serves any other one too.
  // kInverse: lower Cholesky factors of the damped A and G.
  // kEigen:   eigenvectors in columns.
  linalg::Matrix<T> a;  // [d_in, d_in]
  linalg::Matrix<T> g;  // [d_out, d_out]
  // kEigen only: eigenvalues, ascending, those below eps * d * max set to 0.
  std::vector<T> values_a;  // [d_in]
  std::vector<T> values_g;  // [d_out]
};

struct RefreshOptions {
  Method method = Method::kInverse;
  DampingForm form = DampingForm::kFactored;
  double damping = 0;  // lambda; finite, >= 0.
};

// What a refresh works with: tools in the working precision, tools in double
// for the second rung. Both belong to the calling thread.
template <typename T>
struct RefreshTools {
  linalg::LinearAlgebra<T>* working = nullptr;
  linalg::LinearAlgebra<double>* wide = nullptr;
};

// The average of one factor, as it is kept.
template <typename T>
struct PackedAverage {
  const std::vector<T>& values;  // Packed upper triangle.
  int64_t d;                     // Its side.
};

// Factorises the averages of one layer, climbing the ladder until a rung gives
// a factorisation that is finite and reproduces its matrix on a sample vector.
//   kInverse  working precision; double; eigendecomposition in double with
//             negative eigenvalues set to 0, damped and factorised as before;
//             damping x 10, at most three times. A damping of 0 is raised from
//             eps (tr A / d_in) (tr G / d_out).
//   kEigen    working precision; double. More damping would change nothing.
// `method` stays what was asked for on every rung.
//
// The averages are not modified: damping is never written into a stored factor.
// With d_in the side of `a` and d_out that of `g`:
//
// Cost: kInverse (d_in^3 + d_out^3) / 3 flops, kEigen about 9 (d_in^3 +
// d_out^3). Memory beside the result: one square matrix of the larger side; on
// lower rungs both sides and one more in double.
//
// Errors:
//   kInvalidArgument     kInverse with kExact, a non-finite or negative
//                        damping, or sizes that do not fit.
//   kFailedPrecondition  the averages hold non-finite values, or every rung
//                        failed; the message tells each rung's error.
template <typename T>
absl::StatusOr<Factorization<T>> Refresh(RefreshTools<T> tools,
                                         PackedAverage<T> a, PackedAverage<T> g,
                                         const RefreshOptions& options);

// Computes V from the gradient D [d_out, d_in] in place of `gradient`.
//
//   damping  used by kEigen (a new value acts at the next answer); kInverse
//            uses the one in `factorization`.
//
// A component whose exact denominator is 0 (damping and eigenvalue both 0)
// becomes 0.
//
// Returns the sum of V * D, in double.
// Cost: 2 d_in d_out (d_in + d_out) flops; kEigen twice that. Memory: a second
// matrix like `gradient`.
//
// Errors:
//   kInvalidArgument     the shapes do not fit, or `damping` is negative or not
//                        finite; `gradient` is unchanged.
//   kFailedPrecondition  the result is not finite; `gradient` is undefined.
template <typename T>
absl::StatusOr<double> Precondition(linalg::LinearAlgebra<T>& tools,
                                    const Factorization<T>& factorization,
                                    double damping,
                                    linalg::MatrixView<T> gradient);

}  // namespace kronserve::curvature

#endif  // KRONSERVE_CURVATURE_PRECONDITIONER_H_
