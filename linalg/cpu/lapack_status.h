// LAPACK's `info` and its 32-bit sizes as absl::Status.
//
// Layer: linalg, inside cpu/ only.

#ifndef KRONSERVE_LINALG_CPU_LAPACK_STATUS_H_
#define KRONSERVE_LINALG_CPU_LAPACK_STATUS_H_

#include <cstdint>
#include <initializer_list>

#include "absl/status/status.h"

namespace kronserve::linalg::cpu {

// Of {s,d}potrf on an [n, n] matrix: negative is kInternal (a refused
// argument), positive kFailedPrecondition with the order of the minor.
absl::Status CholeskyStatus(int info, int64_t n, double damping);

// Of {s,d}syevd on an [n, n] matrix: negative is kInternal, positive
// kFailedPrecondition (no convergence).
absl::Status EigenStatus(int info, int64_t n);

// kInvalidArgument when a size is more than a 32-bit LAPACK can be told.
absl::Status CheckLapackSizes(std::initializer_list<int64_t> sizes);

// Elements of the work array of {s,d}syevd; n <= kMaxEigenSide.
constexpr int64_t EigenWorkSize(int64_t n) { return 1 + 6 * n + 2 * n * n; }

// The largest side whose workspace a 32-bit LAPACK can be told.
constexpr int64_t kMaxEigenSide = 32766;

// kInvalidArgument when `n` is above kMaxEigenSide.
absl::Status CheckEigenSide(int64_t n);

}  // namespace kronserve::linalg::cpu

#endif  // KRONSERVE_LINALG_CPU_LAPACK_STATUS_H_
