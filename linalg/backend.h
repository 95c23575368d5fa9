// The only door to the linear algebra backends.
//
// Layer: linalg. May include common/ and nothing else of this repository.

#ifndef KRONSERVE_LINALG_BACKEND_H_
#define KRONSERVE_LINALG_BACKEND_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "linalg/dense_kernels.h"
#include "linalg/spd_solver.h"
#include "linalg/symmetric_eigen.h"

namespace kronserve::linalg {

enum class Device { kReference, kCpu, kCuda };

// Turns the word of --device into a device that is usable here.
//
//   name  "auto" (the best usable one), "cuda", "cpu" or "reference".
//
// Errors:
//   kInvalidArgument     another word; lists the words.
//   kFailedPrecondition  the device was asked for by name and is not usable
//                        here; says what is missing. Never a silent fallback.
absl::StatusOr<Device> ResolveDevice(const std::string& name);

// "cpu", "cuda" or "reference".
std::string DeviceName(Device device);

// One thread's set of tools on one device. T is float or double.
template <typename T>
struct LinearAlgebra {
  std::unique_ptr<SpdSolver<T>> spd;
  std::unique_ptr<SymmetricEigen<T>> eigen;
  std::unique_ptr<DenseKernels<T>> kernels;
};

// Creates the tools of `device`. The first call for kCpu sets OpenBLAS to one
// thread per calling thread, for the whole process.
//
// Errors:
//   kFailedPrecondition  the device is not usable here.
template <typename T>
absl::StatusOr<LinearAlgebra<T>> CreateLinearAlgebra(Device device);

}  // namespace kronserve::linalg

#endif  // KRONSERVE_LINALG_BACKEND_H_
