#include "linalg/backend.h"

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "linalg/cpu/factory.h"
#include "linalg/reference/factory.h"

namespace kronserve::linalg {
namespace {

absl::Status NoCudaError() {
  return absl::FailedPreconditionError(
      "this build has no CUDA backend: use --device=cpu or --device=auto");
}

}  // namespace

absl::StatusOr<Device> ResolveDevice(const std::string& name) {
  if (name == "auto" || name == "cpu") return Device::kCpu;
  if (name == "reference") return Device::kReference;
  if (name == "cuda") return NoCudaError();
  return absl::InvalidArgumentError(absl::StrCat(
      "device is '", name, "': use one of auto, cuda, cpu, reference"));
}

std::string DeviceName(Device device) {
  switch (device) {
    case Device::kReference:
      return "reference";
    case Device::kCpu:
      return "cpu";
    case Device::kCuda:
      return "cuda";
  }
  return "unknown";
}

template <typename T>
absl::StatusOr<LinearAlgebra<T>> CreateLinearAlgebra(Device device) {
  LinearAlgebra<T> tools;
  switch (device) {
    case Device::kReference:
      tools.spd = reference::CreateSpdSolver<T>();
      tools.eigen = reference::CreateSymmetricEigen<T>();
      tools.kernels = reference::CreateDenseKernels<T>();
      return tools;
    case Device::kCpu:
      cpu::UseOneBlasThread();
      tools.spd = cpu::CreateSpdSolver<T>();
      tools.eigen = cpu::CreateSymmetricEigen<T>();
      tools.kernels = cpu::CreateDenseKernels<T>();
      return tools;
    case Device::kCuda:
      break;
  }
  return NoCudaError();
}

template absl::StatusOr<LinearAlgebra<float>> CreateLinearAlgebra(Device);
template absl::StatusOr<LinearAlgebra<double>> CreateLinearAlgebra(Device);

}  // namespace kronserve::linalg
