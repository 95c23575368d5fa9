#include "linalg/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"

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

}  // namespace
}  // namespace kronserve::linalg
