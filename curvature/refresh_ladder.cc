// Refresh(): the ladder of PROTOCOL.md 7 over both factors of a layer.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "curvature/damping.h"
#include "curvature/factor_solve.h"
#include "curvature/preconditioner.h"
#include "linalg/backend.h"
#include "linalg/matrix_view.h"
#include "linalg/packed_triangle.h"

namespace kronserve::curvature {
namespace {

using ::kronserve::linalg::LinearAlgebra;
using ::kronserve::linalg::Matrix;
using ::kronserve::linalg::PackedSize;

constexpr int kMaxRaises = 3;

// One factor of the layer.
template <typename T>
struct Side {
  const char* name;
  const std::vector<T>& average;  // Packed.
  int64_t d;
};

// The average in full storage and precision U.
template <typename U, typename T>
Matrix<U> Unpack(const Side<T>& side) {
  Matrix<U> full(side.d, side.d);
  if constexpr (std::is_same_v<U, T>) {
    linalg::UnpackSymmetric<U>(side.average.data(), full.view());
  } else {
    const std::vector<U> wide(side.average.begin(), side.average.end());
    linalg::UnpackSymmetric<U>(wide.data(), full.view());
  }
  return full;
}

absl::Status WithName(const char* name, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("factor ", name, ": ", status.message()));
}

template <typename T>
class Ladder {
 public:
  Ladder(RefreshTools<T> tools, Side<T> a, Side<T> g,
         const RefreshOptions& options)
      : tools_(tools),
        a_(a),
        g_(g),
        trace_a_(linalg::PackedTrace(a.average.data(), a.d)),
        trace_g_(linalg::PackedTrace(g.average.data(), g.d)) {
    result_.method = options.method;
    result_.form = options.form;
    SetDamping(options.damping);
  }

  absl::StatusOr<Factorization<T>> Climb() {
    const bool found = result_.method == Method::kInverse
                           ? DirectCholesky() || DoubleCholesky() ||
                                 ClampedCholesky() || MoreDamping()
                           : DirectEigen() || DoubleEigen();
    if (found) return std::move(result_);
    return absl::FailedPreconditionError(absl::StrCat(
        "every rung of the refresh failed: ", absl::StrJoin(failures_, "; ")));
  }

 private:
  void SetDamping(double damping) {
    result_.damping = damping;
    result_.split = SplitDamping(trace_a_, a_.d, trace_g_, g_.d, damping);
  }

  // Ends a rung; true when it gave the result.
  bool Finish(Rung rung, const std::string& name, const absl::Status& status) {
    result_.rung = rung;
    if (!status.ok()) {
      failures_.push_back(absl::StrCat(name, ": ", status.message()));
    }
    return status.ok();
  }

  bool DirectCholesky() {
    absl::Status status =
        WithName(a_.name, SolveCholesky(*tools_.working, Unpack<T>(a_),
                                        result_.split.gamma_a, &result_.a));
    if (status.ok()) {
      status =
          WithName(g_.name, SolveCholesky(*tools_.working, Unpack<T>(g_),
                                          result_.split.gamma_g, &result_.g));
    }
    return Finish(Rung::kDirect, "working precision", status);
  }

  bool DoubleCholesky() {
    wide_a_ = Unpack<double>(a_);
    wide_g_ = Unpack<double>(g_);
    return Finish(Rung::kDouble, "double", FactorizeWide());
  }

  bool ClampedCholesky() {
    const absl::Status status_a = WithName(a_.name, Clamp(&wide_a_));
    const absl::Status status_g = WithName(g_.name, Clamp(&wide_g_));
    if (!status_a.ok()) return Finish(Rung::kEigen, "eigen", status_a);
    if (!status_g.ok()) return Finish(Rung::kEigen, "eigen", status_g);
    return Finish(Rung::kEigen, "eigen", FactorizeWide());
  }

  bool MoreDamping() {
    double damping = result_.damping * 10;
    if (damping == 0) {
      damping = std::numeric_limits<T>::epsilon() *
                (trace_a_ / static_cast<double>(a_.d)) *
                (trace_g_ / static_cast<double>(g_.d));
    }
    for (int raise = 0; raise < kMaxRaises; ++raise, damping *= 10) {
      if (!std::isfinite(damping) || !(damping > 0)) break;
      SetDamping(damping);
      if (Finish(Rung::kMoreDamping, absl::StrCat("damping ", damping),
                 FactorizeWide())) {
        return true;
      }
    }
    return false;
  }

  // Replaces `m` by what is left without its negative eigenvalues.
  absl::Status Clamp(Matrix<double>* m) {
    KRONSERVE_ASSIGN_OR_RETURN(*m,
                               WithoutNegativeEigenvalues(*tools_.wide, *m));
    return absl::OkStatus();
  }

  absl::Status FactorizeWide() {
    KRONSERVE_RETURN_IF_ERROR(
        WithName(a_.name, SolveCholesky(*tools_.wide, wide_a_,
                                        result_.split.gamma_a, &result_.a)));
    return WithName(g_.name, SolveCholesky(*tools_.wide, wide_g_,
                                           result_.split.gamma_g, &result_.g));
  }

  template <typename U>
  absl::Status Decompose(LinearAlgebra<U>& tools) {
    KRONSERVE_RETURN_IF_ERROR(WithName(
        a_.name,
        SolveEigen(tools, Unpack<U>(a_), &result_.a, &result_.values_a)));
    return WithName(g_.name, SolveEigen(tools, Unpack<U>(g_), &result_.g,
                                        &result_.values_g));
  }

  bool DirectEigen() {
    return Finish(Rung::kDirect, "working precision",
                  Decompose(*tools_.working));
  }

  bool DoubleEigen() {
    return Finish(Rung::kDouble, "double", Decompose(*tools_.wide));
  }

  const RefreshTools<T> tools_;
  const Side<T> a_;
  const Side<T> g_;
  const double trace_a_;
  const double trace_g_;
  Factorization<T> result_;
  std::vector<std::string> failures_;
  Matrix<double> wide_a_;  // From the second rung of kInverse on.
  Matrix<double> wide_g_;
};

template <typename T>
absl::Status CheckSize(const Side<T>& side) {
  // Beyond 2^31 the size of the triangle may not fit 64 bits either.
  constexpr int64_t kMaxSide = std::numeric_limits<int32_t>::max();
  if (side.d >= 1 && side.d <= kMaxSide &&
      static_cast<int64_t>(side.average.size()) == PackedSize(side.d)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "average of factor ", side.name, " has ", side.average.size(),
      " elements, a packed triangle of side ", side.d, " is expected"));
}

template <typename T>
absl::Status CheckFinite(LinearAlgebra<T>& tools, const Side<T>& side) {
  const int64_t bad =
      tools.kernels->CountNonFinite(side.average.data(), side.average.size());
  if (bad == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("average of factor ", side.name, " holds ", bad, " of ",
                   side.average.size(), " values that are not finite"));
}

absl::Status CheckOptions(const RefreshOptions& options) {
  if (options.method == Method::kInverse &&
      options.form == DampingForm::kExact) {
    return absl::InvalidArgumentError(
        "method inverse takes factored damping only: exact damping is not a "
        "Kronecker product");
  }
  if (!std::isfinite(options.damping) || options.damping < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("damping must be finite and >= 0, got ", options.damping));
  }
  return absl::OkStatus();
}

}  // namespace

template <typename T>
absl::StatusOr<Factorization<T>> Refresh(RefreshTools<T> tools,
                                         PackedAverage<T> average_a,
                                         PackedAverage<T> average_g,
                                         const RefreshOptions& options) {
  const Side<T> a{"A", average_a.values, average_a.d};
  const Side<T> g{"G", average_g.values, average_g.d};
  KRONSERVE_RETURN_IF_ERROR(CheckOptions(options));
  KRONSERVE_RETURN_IF_ERROR(CheckSize(a));
  KRONSERVE_RETURN_IF_ERROR(CheckSize(g));
  KRONSERVE_RETURN_IF_ERROR(CheckFinite(*tools.working, a));
  KRONSERVE_RETURN_IF_ERROR(CheckFinite(*tools.working, g));
  return Ladder<T>(tools, a, g, options).Climb();
}

template absl::StatusOr<Factorization<float>> Refresh(RefreshTools<float>,
                                                      PackedAverage<float>,
                                                      PackedAverage<float>,
                                                      const RefreshOptions&);
template absl::StatusOr<Factorization<double>> Refresh(RefreshTools<double>,
                                                       PackedAverage<double>,
                                                       PackedAverage<double>,
                                                       const RefreshOptions&);

}  // namespace kronserve::curvature
