#include "server/cost_probe.h"

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::IsOk;

double At(const v1::CostCurve& curve, double d) {
  return curve.seconds() + curve.seconds_per_d2() * d * d +
         curve.seconds_per_d3() * d * d * d;
}

TEST(FitCostCurve, FindsTheCurveThatMadeTheSamples) {
  std::vector<CostSample> samples;
  for (int64_t d : {64, 256, 512}) {
    const double x = static_cast<double>(d);
    samples.push_back({d, 1e-5 + 2e-9 * x * x + 3e-12 * x * x * x});
  }
  const v1::CostCurve curve = FitCostCurve(samples);
  EXPECT_NEAR(curve.seconds(), 1e-5, 1e-8);
  EXPECT_NEAR(curve.seconds_per_d2(), 2e-9, 1e-12);
  EXPECT_NEAR(curve.seconds_per_d3(), 3e-12, 1e-15);
}

TEST(FitCostCurve, NoTermIsNegative) {
  // Grows faster than d^3: the exact curve would have a negative term.
  const v1::CostCurve curve =
      FitCostCurve({{64, 1e-6}, {256, 1e-3}, {512, 1e-1}});
  EXPECT_GE(curve.seconds(), 0);
  EXPECT_GE(curve.seconds_per_d2(), 0);
  EXPECT_GE(curve.seconds_per_d3(), 0);
  EXPECT_GT(At(curve, 512), At(curve, 64));
}

TEST(MeasureCostCurve, LargerFactorsCostMore) {
  const auto curve = MeasureCostCurve(linalg::Device::kCpu,
                                      absl::Milliseconds(60), SteadyClock());
  ASSERT_THAT(curve, IsOk());
  EXPECT_GT(At(*curve, 64), 0);
  EXPECT_GT(At(*curve, 2048), At(*curve, 64));
}

TEST(MeasureCostCurve, DeviceThatIsNotHereIsAnError) {
  EXPECT_EQ(MeasureCostCurve(linalg::Device::kCuda, absl::Milliseconds(1),
                             SteadyClock())
                .status()
                .code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(DefaultCostCurve, IsThatOfThePlacement) {
  EXPECT_GT(At(DefaultCostCurve(), 512), At(DefaultCostCurve(), 64));
}

}  // namespace
}  // namespace kronserve::server
