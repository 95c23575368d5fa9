#include "worker/factor_accumulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/testing/status_matchers.h"
#include "linalg/backend.h"

namespace kronserve::worker {
namespace {

using ::kronserve::curvature::ConvGeometry;
using ::kronserve::linalg::ConstMatrixView;
using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class FactorAccumulatorTest : public ::testing::Test {
 protected:
  FactorAccumulator Accumulator() {
    return FactorAccumulator({{"fc", 1, 2, true}, {"out", 2, 1, false}},
                             tools_.kernels.get());
  }

  linalg::LinearAlgebra<float> tools_ =
      *linalg::CreateLinearAlgebra<float>(linalg::Device::kReference);
};

TEST_F(FactorAccumulatorTest, SumsByHand) {
  FactorAccumulator accumulator = Accumulator();
  const float inputs[] = {2, 3};
  // Mean loss over 2 rows: g = 2 * hook = 1, 3.
  const float hooks[] = {0.5f, 1.5f};
  ASSERT_THAT(accumulator.AddLinear(0, {inputs, 2, 1}, {hooks, 2, 1}, 2),
              IsOk());
  const auto all = accumulator.TakeAll();
  ASSERT_EQ(all[0].body, v1::CONTRIBUTION_BODY_DATA);
  // a~ = (2, 1), (3, 1): [[13, 5], [5, 2]].
  EXPECT_THAT(all[0].input.packed, ElementsAre(13, 5, 2));
  EXPECT_THAT(all[0].output.packed, ElementsAre(10));
  EXPECT_EQ(all[0].input.loss_rows, 2);
  EXPECT_EQ(all[0].input.rows, 2);
  EXPECT_EQ(all[0].output.loss_rows, 2);
  EXPECT_EQ(all[0].output.rows, 2);
  EXPECT_EQ(all[1].body, v1::CONTRIBUTION_BODY_EMPTY_UNUSED);
}

// Four micro-batches whose A are 1, 2, 3 and 6 over 6 rows each are one
// contribution of sum 12 over 24 rows, not the last of them.
TEST_F(FactorAccumulatorTest, MicroBatchesAreOneContribution) {
  FactorAccumulator accumulator = Accumulator();
  for (const int ones : {1, 2, 3, 6}) {
    std::vector<float> inputs(6, 0.0f);
    std::fill(inputs.begin(), inputs.begin() + ones, 1.0f);
    const std::vector<float> hooks(12, 1.0f / 6);  // g = 1 everywhere.
    ASSERT_THAT(accumulator.AddLinear(1, {inputs.data(), 6, 1},
                                      {hooks.data(), 6, 2}, 6),
                IsOk());
  }
  const auto all = accumulator.TakeAll();
  EXPECT_THAT(all[1].input.packed, ElementsAre(12));
  EXPECT_EQ(all[1].input.loss_rows, 24);
  EXPECT_EQ(all[1].output.loss_rows, 24);
  EXPECT_EQ(all[1].output.rows, 24);
  EXPECT_THAT(all[1].output.packed,
              ElementsAre(FloatEq(24), FloatEq(24), FloatEq(24)));
}

TEST_F(FactorAccumulatorTest, NothingStaysForTheNextStep) {
  FactorAccumulator accumulator = Accumulator();
  const float one[] = {1, 1};
  ASSERT_THAT(accumulator.AddLinear(1, {one, 1, 1}, {one, 1, 2}, 1), IsOk());
  accumulator.TakeAll();
  EXPECT_EQ(accumulator.TakeAll()[1].body, v1::CONTRIBUTION_BODY_EMPTY_UNUSED);
}

TEST_F(FactorAccumulatorTest, OneNonFiniteSumEmptiesTheLayer) {
  const float good[] = {1, 1};
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(), 1e30f}) {
    FactorAccumulator accumulator = Accumulator();
    const float hooks[] = {bad, 1};
    ASSERT_THAT(accumulator.AddLinear(1, {good, 1, 1}, {hooks, 1, 2}, 1),
                IsOk());
    const auto all = accumulator.TakeAll();
    EXPECT_EQ(all[1].body, v1::CONTRIBUTION_BODY_EMPTY_NON_FINITE) << bad;
    EXPECT_THAT(all[1].input.packed, IsEmpty()) << bad;
  }
}

TEST_F(FactorAccumulatorTest, NoRowsIsNotUnused) {
  FactorAccumulator accumulator = Accumulator();
  ASSERT_THAT(accumulator.AddLinear(1, {nullptr, 0, 1}, {nullptr, 0, 2}, 4),
              IsOk());
  EXPECT_EQ(accumulator.TakeAll()[1].body, v1::CONTRIBUTION_BODY_EMPTY_NO_ROWS);
}

TEST_F(FactorAccumulatorTest, OneByOneConvolutionIsLinear) {
  FactorAccumulator accumulator = Accumulator();
  ConvGeometry geometry;
  geometry.in_channels = 1;
  geometry.in_height = 1;
  geometry.in_width = 1;
  const float inputs[] = {2, 3};
  const float hooks[] = {0.5f, 1.5f};
  ASSERT_THAT(
      accumulator.AddConv(0, geometry, {inputs, 2, 1}, {hooks, 2, 1}, 2),
      IsOk());
  const auto all = accumulator.TakeAll();
  EXPECT_THAT(all[0].input.packed, ElementsAre(13, 5, 2));
  EXPECT_THAT(all[0].output.packed, ElementsAre(10));
  EXPECT_EQ(all[0].output.rows, 2);
}

TEST_F(FactorAccumulatorTest, NamesShapesThatDoNotFit) {
  FactorAccumulator accumulator = Accumulator();
  const float data[8] = {};
  EXPECT_THAT(accumulator.AddLinear(2, {data, 1, 1}, {data, 1, 1}, 1),
              StatusIs(kInvalid, HasSubstr("layer 2 is not one of the job's "
                                           "2 layers")));
  EXPECT_THAT(accumulator.AddLinear(-1, {data, 1, 1}, {data, 1, 1}, 1),
              StatusIs(kInvalid, HasSubstr("layer -1")));
  EXPECT_THAT(accumulator.AddLinear(0, {data, 1, 2}, {data, 1, 1}, 1),
              StatusIs(kInvalid, HasSubstr("layer 'fc': inputs have 2 columns, "
                                           "expected 1")));
  EXPECT_THAT(
      accumulator.AddLinear(1, {data, 1, 1}, {data, 1, 1}, 1),
      StatusIs(kInvalid, HasSubstr("layer 'out': output gradients have 1 "
                                   "columns, expected 2")));
  EXPECT_THAT(accumulator.AddLinear(0, {data, 2, 1}, {data, 1, 1}, 1),
              StatusIs(kInvalid, HasSubstr("2 input rows, but 1")));
  EXPECT_THAT(accumulator.AddLinear(0, {data, 1, 1}, {data, 1, 1}, 0),
              StatusIs(kInvalid, HasSubstr("loss_rows is 0")));
  EXPECT_EQ(accumulator.TakeAll()[0].body, v1::CONTRIBUTION_BODY_EMPTY_UNUSED);
}

TEST_F(FactorAccumulatorTest, NamesConvolutionsThatDoNotFit) {
  FactorAccumulator accumulator = Accumulator();
  const float data[64] = {};
  ConvGeometry geometry;
  geometry.in_channels = 1;
  geometry.in_height = 2;
  geometry.in_width = 2;
  geometry.kernel_height = 3;
  EXPECT_THAT(accumulator.AddConv(0, geometry, {data, 1, 4}, {data, 1, 1}, 1),
              StatusIs(kInvalid, HasSubstr("has no output")));
  geometry.kernel_height = 2;
  EXPECT_THAT(accumulator.AddConv(0, geometry, {data, 1, 4}, {data, 1, 2}, 1),
              StatusIs(kInvalid, HasSubstr("have 3 columns, registered d_in "
                                           "is 2")));
  geometry.kernel_height = 1;
  EXPECT_THAT(accumulator.AddConv(0, geometry, {data, 1, 3}, {data, 1, 4}, 1),
              StatusIs(kInvalid, HasSubstr("images have 3 columns")));
  EXPECT_THAT(accumulator.AddConv(0, geometry, {data, 1, 4}, {data, 1, 3}, 1),
              StatusIs(kInvalid, HasSubstr("expected 1 channels of 4")));
  geometry.stride = 0;
  EXPECT_THAT(accumulator.AddConv(0, geometry, {data, 1, 4}, {data, 1, 4}, 1),
              StatusIs(kInvalid, HasSubstr("stride 0")));
}

}  // namespace
}  // namespace kronserve::worker
