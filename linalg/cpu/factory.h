// OpenBLAS and LAPACK on the calling thread.
//
// Layer: linalg. Included by linalg/backend.cc and tests only. T is float or
// double.

#ifndef KRONSERVE_LINALG_CPU_FACTORY_H_
#define KRONSERVE_LINALG_CPU_FACTORY_H_

#include <memory>

#include "linalg/dense_kernels.h"
#include "linalg/spd_solver.h"
#include "linalg/symmetric_eigen.h"

namespace kronserve::linalg::cpu {

// Makes every BLAS call stay on its calling thread, for the whole process:
// parallelism is the caller's, one task per thread, and OpenBLAS has no
// thread-local setting. Thread-safe; only the first call acts.
void UseOneBlasThread();

template <typename T>
std::unique_ptr<SpdSolver<T>> CreateSpdSolver();

template <typename T>
std::unique_ptr<SymmetricEigen<T>> CreateSymmetricEigen();

template <typename T>
std::unique_ptr<DenseKernels<T>> CreateDenseKernels();

}  // namespace kronserve::linalg::cpu

#endif  // KRONSERVE_LINALG_CPU_FACTORY_H_
