#include "linalg/cpu/lapack_status.h"

#include <cstdint>
#include <initializer_list>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace kronserve::linalg::cpu {
namespace {

constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();
static_assert(EigenWorkSize(kMaxEigenSide) <= kMaxSize);
static_assert(EigenWorkSize(kMaxEigenSide + 1) > kMaxSize);

}  // namespace

absl::Status CholeskyStatus(int info, int64_t n, double damping) {
  if (info == 0) return absl::OkStatus();
  if (info < 0) {
    return absl::InternalError(
        absl::StrCat("LAPACK potrf refused argument ", -info, ", n = ", n));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("not positive definite: leading minor of order ", info,
                   " of ", n, " failed at damping ", damping));
}

absl::Status EigenStatus(int info, int64_t n) {
  if (info == 0) return absl::OkStatus();
  if (info < 0) {
    return absl::InternalError(
        absl::StrCat("LAPACK syevd refused argument ", -info, ", n = ", n));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("eigenvalues of a [", n, ", ", n,
                   "] matrix did not converge (LAPACK syevd info ", info, ")"));
}

absl::Status CheckEigenSide(int64_t n) {
  if (n <= kMaxEigenSide) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("eigendecomposition of side ",
                                                 n, ": at most ", kMaxEigenSide,
                                                 " with this build's LAPACK"));
}

absl::Status CheckLapackSizes(std::initializer_list<int64_t> sizes) {
  for (const int64_t size : sizes) {
    if (size <= kMaxSize) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("size ", size, " is above ", kMaxSize,
                     ", the most that this build's LAPACK can address"));
  }
  return absl::OkStatus();
}

}  // namespace kronserve::linalg::cpu
