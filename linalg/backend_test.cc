#include "linalg/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"
#include "linalg/matrix_view.h"
#include "linalg/testing/random_matrix.h"

namespace kronserve::linalg {
namespace {

using ::kronserve::testing::StatusIs;
using ::testing::HasSubstr;

TEST(BackendTest, ResolvesTheWordsThatAreUsableHere) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Device automatic, ResolveDevice("auto"));
  EXPECT_EQ(automatic, Device::kCpu);
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Device cpu, ResolveDevice("cpu"));
  EXPECT_EQ(cpu, Device::kCpu);
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Device reference,
                                 ResolveDevice("reference"));
  EXPECT_EQ(reference, Device::kReference);
}

TEST(BackendTest, AnExplicitDeviceIsNeverReplaced) {
  EXPECT_THAT(ResolveDevice("cuda"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("this build has no CUDA backend")));
  EXPECT_THAT(CreateLinearAlgebra<float>(Device::kCuda),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("this build has no CUDA backend")));
}

TEST(BackendTest, AnotherWordListsTheWords) {
  for (const char* word : {"gpu", "", "CPU"}) {
    EXPECT_THAT(ResolveDevice(word),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("auto, cuda, cpu, reference")));
  }
}

TEST(BackendTest, NamesAreTheWords) {
  EXPECT_EQ(DeviceName(Device::kCpu), "cpu");
  EXPECT_EQ(DeviceName(Device::kCuda), "cuda");
  EXPECT_EQ(DeviceName(Device::kReference), "reference");
}

TEST(BackendTest, CreatesEveryTool) {
  for (const Device device : {Device::kCpu, Device::kReference}) {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto tools,
                                   CreateLinearAlgebra<double>(device));
    EXPECT_NE(tools.spd, nullptr);
    EXPECT_NE(tools.eigen, nullptr);
    EXPECT_NE(tools.kernels, nullptr);
  }
}

// One BLAS thread per calling thread: parallel callers neither disturb one
// another nor change a bit of the result.
TEST(BackendTest, ThreadsWithToolsOfTheirOwnGetTheSameBits) {
  constexpr int64_t kN = 150;
  constexpr int kThreads = 4;
  const Matrix<float> m =
      testing::Cast<float>(testing::SymmetricWithEigenvalues(
          testing::Spectrum(kN, 100), /*seed=*/9));
  const auto work = [&m](Matrix<float>* result) {
    auto tools = CreateLinearAlgebra<float>(Device::kCpu);
    if (!tools.ok()) return;
    Matrix<float> lower(kN, kN);
    if (!tools->spd->Factorize(m.view(), 0.1, lower.view()).ok()) return;
    Matrix<float> product(kN, kN);
    tools->kernels->Gemm(Transpose::kNo, Transpose::kYes, 1, lower.view(),
                         lower.view(), 0, product.view());
    *result = std::move(product);
  };
  Matrix<float> expected;
  work(&expected);
  ASSERT_EQ(expected.rows, kN);

  std::vector<Matrix<float>> results(kThreads);
  std::vector<std::thread> threads;
  for (Matrix<float>& result : results) threads.emplace_back(work, &result);
  for (std::thread& thread : threads) thread.join();
  for (const Matrix<float>& result : results) {
    EXPECT_EQ(result.values, expected.values);
  }
}

}  // namespace
}  // namespace kronserve::linalg
