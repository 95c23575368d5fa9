#include "server/tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/checksum.h"
#include "common/testing/status_matchers.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

Tensor Make(std::vector<float> values) {
  return std::make_shared<const std::vector<float>>(std::move(values));
}

uint64_t ChecksumOf(const std::vector<float>& values) {
  return Checksum(values.data(), values.size() * sizeof(float));
}

TEST(CheckTensor, NamesBothChecksumsAndTheNumberOfBadEntries) {
  const std::vector<float> good = {1, 2, 3};
  EXPECT_THAT(CheckTensor(good, ChecksumOf(good)), IsOk());
  EXPECT_THAT(CheckTensor(good, 0x12),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("checksum"), HasSubstr("12"))));
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> bad = {inf, 1, -inf,
                                  std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THAT(CheckTensor(bad, ChecksumOf(bad)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("3 of 4 entries")));
}

MergeInput MakeInput() {
  MergeInput input;
  input.d_in = 2;
  input.d_out = 1;
  input.factor_decay = 0.5;
  input.a = {{Make({8, 2, 4}), 3}, {Make({4, 0, 2}), 1}};
  input.g = {{Make({6}), 2}, {Make({2}), 2}};
  return input;
}

TEST(RunMerge, DividesTheSumOnceByAllRows) {
  const auto merged = RunMerge(MakeInput());
  ASSERT_THAT(merged, IsOk());
  EXPECT_THAT(*merged->a, ElementsAre(3, 0.5, 1.5));  // (12, 2, 6) / 4.
  EXPECT_THAT(*merged->g, ElementsAre(2));            // 8 / 4.
}

TEST(RunMerge, MovesTheAverageAndLeavesTheOldOne) {
  MergeInput input = MakeInput();
  input.k = 2;
  input.before = {Make({1, 1, 1}), Make({4})};
  const auto merged = RunMerge(input);
  ASSERT_THAT(merged, IsOk());
  EXPECT_THAT(*merged->a, ElementsAre(2, 0.75, 1.25));
  EXPECT_THAT(*merged->g, ElementsAre(3));
  EXPECT_THAT(*input.before.a, ElementsAre(1, 1, 1));
}

TEST(RunMerge, SumMayPassTheRangeOfAFloatIfTheFactorDoesNot) {
  MergeInput input = MakeInput();
  input.g = {{Make({3e38f}), 1}, {Make({3e38f}), 1}};
  auto merged = RunMerge(input);
  ASSERT_THAT(merged, IsOk());
  EXPECT_THAT(*merged->g, ElementsAre(3e38f));
  input.scale_g = 2;
  EXPECT_THAT(RunMerge(input),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("1 entries of the merged factor")));
}

TEST(RunMerge, NothingToDivideByIsAnError) {
  MergeInput input = MakeInput();
  input.a.clear();
  EXPECT_THAT(RunMerge(input), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("no rows")));
}

class ToolsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto tools = CreateTaskTools(linalg::Device::kReference);
    ASSERT_THAT(tools, IsOk());
    tools_ = *std::move(tools);
  }
  TaskTools tools_;
};

// A = [[2, 1], [1, 2]], G = [[3, 1], [1, 2]] do not commute; V by hand.
TEST_F(ToolsTest, RefreshedFactorsInvertBothSides) {
  RefreshInput refresh;
  refresh.d_in = refresh.d_out = 2;
  refresh.averages.a = Make({2, 1, 2});
  refresh.averages.g = Make({3, 1, 2});
  auto factorization = RunRefresh(tools_, refresh);
  ASSERT_THAT(factorization, IsOk());

  PreconditionInput input;
  input.factorization =
      std::make_shared<curvature::Factorization<float>>(*factorization);
  input.rows = input.cols = 2;
  input.gradient = Make({1, 2, 0, 0});
  const auto output = RunPrecondition(tools_, input);
  ASSERT_THAT(output, IsOk());
  EXPECT_THAT(*output->value,
              ElementsAre(FloatNear(0, 1e-6f), FloatNear(0.4f, 1e-6f),
                          FloatNear(0, 1e-6f), FloatNear(-0.2f, 1e-6f)));
  EXPECT_NEAR(output->inner_product, 0.8, 1e-6);
  EXPECT_EQ(output->checksum, ChecksumOf(*output->value));
  EXPECT_THAT(*input.gradient, ElementsAre(1, 2, 0, 0));
}

TEST_F(ToolsTest, RefreshOfNonFiniteAveragesFails) {
  RefreshInput refresh;
  refresh.d_in = refresh.d_out = 1;
  refresh.averages.a = Make({std::numeric_limits<float>::quiet_NaN()});
  refresh.averages.g = Make({1});
  EXPECT_EQ(RunRefresh(tools_, refresh).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(CreateTaskTools, DeviceThatIsNotHereIsAnError) {
  EXPECT_EQ(CreateTaskTools(linalg::Device::kCuda).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace kronserve::server
