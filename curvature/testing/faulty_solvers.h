// Solvers that go wrong a given number of times, in front of real ones.
//
// Layer: curvature, tests only.

#ifndef KRONSERVE_CURVATURE_TESTING_FAULTY_SOLVERS_H_
#define KRONSERVE_CURVATURE_TESTING_FAULTY_SOLVERS_H_

#include <limits>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "linalg/backend.h"
#include "linalg/matrix_view.h"

namespace kronserve::curvature::testing {

enum class Fault {
  kError,  // kFailedPrecondition.
  kNan,    // OK, with a NaN in the result.
  kWrong,  // OK, with a finite result that is wrong.
};

template <typename T>
void Damage(Fault fault, linalg::MatrixView<T> result) {
  T& victim = result(result.rows - 1, 0);
  victim =
      fault == Fault::kNan ? std::numeric_limits<T>::quiet_NaN() : victim + 100;
}

template <typename T>
class FaultySpdSolver final : public linalg::SpdSolver<T> {
 public:
  FaultySpdSolver(std::unique_ptr<linalg::SpdSolver<T>> inner, Fault fault,
                  int times)
      : inner_(std::move(inner)), fault_(fault), left_(times) {}

  absl::Status Factorize(linalg::ConstMatrixView<T> m, double damping,
                         linalg::MatrixView<T> lower) override {
    const bool faulty = left_-- > 0;
    if (faulty && fault_ == Fault::kError) {
      return absl::FailedPreconditionError("injected Cholesky failure");
    }
    absl::Status status = inner_->Factorize(m, damping, lower);
    if (faulty) Damage(fault_, lower);
    return status;
  }

  absl::Status SolveLeft(linalg::ConstMatrixView<T> lower,
                         linalg::MatrixView<T> b) override {
    return inner_->SolveLeft(lower, b);
  }

  absl::Status SolveRight(linalg::ConstMatrixView<T> lower,
                          linalg::MatrixView<T> b) override {
    return inner_->SolveRight(lower, b);
  }

 private:
  const std::unique_ptr<linalg::SpdSolver<T>> inner_;
  const Fault fault_;
  int left_;
};

template <typename T>
class FaultyEigen final : public linalg::SymmetricEigen<T> {
 public:
  FaultyEigen(std::unique_ptr<linalg::SymmetricEigen<T>> inner, Fault fault,
              int times)
      : inner_(std::move(inner)), fault_(fault), left_(times) {}

  absl::Status Decompose(linalg::ConstMatrixView<T> m,
                         linalg::MatrixView<T> vectors, T* values) override {
    const bool faulty = left_-- > 0;
    if (faulty && fault_ == Fault::kError) {
      return absl::FailedPreconditionError("injected eigensolver failure");
    }
    absl::Status status = inner_->Decompose(m, vectors, values);
    if (faulty) Damage(fault_, vectors);
    return status;
  }

 private:
  const std::unique_ptr<linalg::SymmetricEigen<T>> inner_;
  const Fault fault_;
  int left_;
};

// Puts a faulty solver in front of the one in `tools`.
template <typename T>
void MakeCholeskyFaulty(Fault fault, int times,
                        linalg::LinearAlgebra<T>* tools) {
  tools->spd =
      std::make_unique<FaultySpdSolver<T>>(std::move(tools->spd), fault, times);
}

template <typename T>
void MakeEigenFaulty(Fault fault, int times, linalg::LinearAlgebra<T>* tools) {
  tools->eigen =
      std::make_unique<FaultyEigen<T>>(std::move(tools->eigen), fault, times);
}

}  // namespace kronserve::curvature::testing

#endif  // KRONSERVE_CURVATURE_TESTING_FAULTY_SOLVERS_H_
