// Plain loops in double: the oracle that other backends are tested against.
//
// Layer: linalg. Included by linalg/backend.cc and tests only. T is float or
// double; inner sums are in double for both.

#ifndef KRONSERVE_LINALG_REFERENCE_FACTORY_H_
#define KRONSERVE_LINALG_REFERENCE_FACTORY_H_

#include <memory>

#include "linalg/dense_kernels.h"
#include "linalg/spd_solver.h"
#include "linalg/symmetric_eigen.h"

namespace kronserve::linalg::reference {

template <typename T>
std::unique_ptr<SpdSolver<T>> CreateSpdSolver();

// Cyclic Jacobi. It needs about 10 sweeps; `max_sweeps` is where Decompose()
// says that it did not converge.
template <typename T>
std::unique_ptr<SymmetricEigen<T>> CreateSymmetricEigen(int max_sweeps = 60);

template <typename T>
std::unique_ptr<DenseKernels<T>> CreateDenseKernels();

}  // namespace kronserve::linalg::reference

#endif  // KRONSERVE_LINALG_REFERENCE_FACTORY_H_
