// Portable SymmetricEigen: the cyclic Jacobi method.
//
// Source: Golub & Van Loan, "Matrix Computations", 4th ed., Section 8.5.

#include "linalg/symmetric_eigen.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "linalg/input_checks.h"
#include "linalg/matrix_view.h"
#include "linalg/reference/factory.h"

namespace kronserve::linalg::reference {
namespace {

template <typename T>
class JacobiEigen final : public SymmetricEigen<T> {
 public:
  explicit JacobiEigen(int max_sweeps) : max_sweeps_(max_sweeps) {}

  absl::Status Decompose(ConstMatrixView<T> m, MatrixView<T> vectors,
                         T* values) override {
    KRONSERVE_RETURN_IF_ERROR(CheckDecomposeCall<T>(m, vectors));
    Load(m);
    int sweeps = 0;
    while (!IsDiagonal()) {
      if (sweeps++ == max_sweeps_) {
        return absl::FailedPreconditionError(absl::StrCat(
            "eigenvalues of a [", n_, ", ", n_, "] matrix did not converge in ",
            max_sweeps_, " Jacobi sweeps"));
      }
      for (int64_t p = 0; p < n_; ++p) {
        for (int64_t q = p + 1; q < n_; ++q) Rotate(p, q);
      }
    }
    Store(vectors, values);
    return absl::OkStatus();
  }

 private:
  // Takes the lower triangle, scaled so that squares cannot overflow.
  void Load(ConstMatrixView<T> m) {
    n_ = m.rows;
    a_.assign(n_ * n_, 0.0);
    basis_.assign(n_ * n_, 0.0);
    scale_ = 0;
    for (int64_t row = 0; row < n_; ++row) {
      basis_[row * n_ + row] = 1;
      for (int64_t col = 0; col <= row; ++col) {
        a_[row * n_ + col] = a_[col * n_ + row] = m(row, col);
        scale_ = std::max(scale_, std::abs(a_[row * n_ + col]));
      }
    }
    if (scale_ == 0) scale_ = 1;
    for (double& entry : a_) entry /= scale_;
  }

  bool IsDiagonal() const {
    double off = 0;
    double all = 0;
    for (int64_t row = 0; row < n_; ++row) {
      for (int64_t col = 0; col < n_; ++col) {
        const double square = a_[row * n_ + col] * a_[row * n_ + col];
        all += square;
        if (row != col) off += square;
      }
    }
    constexpr double kEps = std::numeric_limits<double>::epsilon();
    return off <= kEps * kEps * all;
  }

  // Makes entry (p, q) zero by a rotation in that plane.
  void Rotate(int64_t p, int64_t q) {
    const double apq = a_[p * n_ + q];
    if (apq == 0) return;
    const double tau = (a_[q * n_ + q] - a_[p * n_ + p]) / (2 * apq);
    const double t =
        (tau >= 0 ? 1.0 : -1.0) / (std::abs(tau) + std::hypot(1.0, tau));
    const double c = 1 / std::hypot(1.0, t);
    const double s = t * c;
    for (int64_t k = 0; k < n_; ++k) {
      Turn(c, s, &a_[k * n_ + p], &a_[k * n_ + q]);
    }
    for (int64_t k = 0; k < n_; ++k) {
      Turn(c, s, &a_[p * n_ + k], &a_[q * n_ + k]);
      Turn(c, s, &basis_[p * n_ + k], &basis_[q * n_ + k]);
    }
    a_[p * n_ + q] = a_[q * n_ + p] = 0;
  }

  static void Turn(double c, double s, double* x, double* y) {
    const double old_x = *x;
    *x = c * old_x - s * *y;
    *y = s * old_x + c * *y;
  }

  void Store(MatrixView<T> vectors, T* values) const {
    std::vector<int64_t> order(n_);
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(), [this](int64_t i, int64_t j) {
      return a_[i * n_ + i] < a_[j * n_ + j];
    });
    for (int64_t col = 0; col < n_; ++col) {
      const int64_t from = order[col];
      values[col] = static_cast<T>(scale_ * a_[from * n_ + from]);
      for (int64_t row = 0; row < n_; ++row) {
        vectors(row, col) = static_cast<T>(basis_[from * n_ + row]);
      }
    }
  }

  const int max_sweeps_;
  int64_t n_ = 0;
  double scale_ = 1;           // Largest entry of the input, or 1.
  std::vector<double> a_;      // [n, n], becomes diagonal.
  std::vector<double> basis_;  // [n, n], eigenvectors in rows.
};

}  // namespace

template <typename T>
std::unique_ptr<SymmetricEigen<T>> CreateSymmetricEigen(int max_sweeps) {
  return std::make_unique<JacobiEigen<T>>(max_sweeps);
}

template std::unique_ptr<SymmetricEigen<float>> CreateSymmetricEigen(int);
template std::unique_ptr<SymmetricEigen<double>> CreateSymmetricEigen(int);

}  // namespace kronserve::linalg::reference
