// The backends that a contract suite runs over, with both element types.
//
// Layer: linalg, tests only.

#ifndef KRONSERVE_LINALG_TESTING_BACKENDS_H_
#define KRONSERVE_LINALG_TESTING_BACKENDS_H_

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <type_traits>

#include "linalg/backend.h"

namespace kronserve::linalg::testing {

template <Device TheDevice, typename T>
struct Backend {
  static constexpr Device kDevice = TheDevice;
  using Element = T;
};

// A backend joins every suite by its two lines here.
using Backends = ::testing::Types<
    Backend<Device::kReference, float>, Backend<Device::kReference, double>,
    Backend<Device::kCpu, float>, Backend<Device::kCpu, double>>;

// Names the suites "CpuFloat" and so on.
struct BackendName {
  template <typename B>
  static std::string GetName(int) {
    const bool is_float = std::is_same_v<typename B::Element, float>;
    return DeviceName(B::kDevice) + (is_float ? "_float" : "_double");
  }
};

template <typename B>
class BackendTest : public ::testing::Test {
 protected:
  using T = typename B::Element;
  static constexpr double kEps = std::numeric_limits<T>::epsilon();
  static constexpr T kNan = std::numeric_limits<T>::quiet_NaN();

  BackendTest() : tools_(*CreateLinearAlgebra<T>(B::kDevice)) {}

  LinearAlgebra<T> tools_;
};

}  // namespace kronserve::linalg::testing

#endif  // KRONSERVE_LINALG_TESTING_BACKENDS_H_
