#include "placement/memory_model.h"

#include <gtest/gtest.h>

namespace kronserve::placement {
namespace {

// d_in 3, d_out 2: packed 6 + 3 = 9, square 9 + 4 = 13, gradient 6 elements.
LayerMemory Small() {
  LayerMemory layer;
  layer.d_in = 3;
  layer.d_out = 2;
  layer.contributors = 4;
  layer.open_rounds = 2;
  return layer;
}

TEST(MemoryModelTest, CountsALayerByHand) {
  const LayerBytes bytes = PredictLayer(Small());
  EXPECT_EQ(bytes.averages, 9 * 4);
  EXPECT_EQ(bytes.factorizations, 13 * 4 * 2);
  EXPECT_EQ(bytes.rounds, 9 * 4 * 2 * 4);
  EXPECT_EQ(bytes.gradients, 6 * 4 * 2);
  EXPECT_EQ(bytes.total(), 36 + 104 + 288 + 48);
  EXPECT_EQ(PredictLayerBytes(Small()), 476);
  EXPECT_EQ(PredictWorkspaceBytes(Small()), 13 * 8);
}

TEST(MemoryModelTest, EigenKeepsTheEigenvaluesToo) {
  LayerMemory layer = Small();
  layer.eigen = true;
  EXPECT_EQ(PredictLayer(layer).factorizations, (13 + 5) * 4 * 2);
}

TEST(MemoryModelTest, AJobTakesOneWorkspacePerThread) {
  LayerMemory one;  // [1, 1]: averages 8, factorizations 16, rounds 8, 8.
  EXPECT_EQ(PredictLayerBytes(one), 40);
  EXPECT_EQ(PredictJobBytes({Small(), one}, /*refresh_threads=*/3,
                            /*num_ranks=*/2),
            476 + 40 + 3 * 104 + 2 * 2 * 1048576);
  EXPECT_EQ(PredictJobBytes({}, 3, 2), 0);
}

TEST(MemoryModelTest, LargeSidesAreCountedIn64Bits) {
  LayerMemory layer;
  layer.d_in = 32768;
  layer.d_out = 1;
  // 32768^2 = 2^30; packed (2^30 + 2^15) / 2 + 1.
  const int64_t square = int64_t{1} << 30;
  const int64_t packed = (square + 32768) / 2 + 1;
  EXPECT_EQ(PredictLayer(layer).averages, packed * 4);
  EXPECT_EQ(PredictLayer(layer).factorizations, (square + 1) * 8);
}

TEST(MemoryModelTest, WhatCannotBeCountedSaturates) {
  LayerMemory layer;
  layer.d_in = 1000000000;
  layer.d_out = 2147483647;
  EXPECT_EQ(PredictLayerBytes(layer), kUncountableBytes);
  EXPECT_EQ(PredictWorkspaceBytes(layer), kUncountableBytes);
  EXPECT_EQ(PredictJobBytes({layer, layer}, 8, 1), kUncountableBytes);
}

TEST(MemoryModelTest, AlmostUncountableIsStillExact) {
  LayerMemory layer;
  layer.d_in = 1000000000;
  layer.d_out = 1;
  // 8 (10^18 + 1) is below 2^63.
  EXPECT_EQ(PredictLayer(layer).factorizations, 8000000000000000008);
  EXPECT_EQ(PredictLayer(layer).averages, 2000000002000000004);
  EXPECT_EQ(PredictLayerBytes(layer), kUncountableBytes);
}

TEST(MemoryModelTest, ContributorsFollowTheFactorSource) {
  v1::LayerSpec layer;
  layer.set_d_in(5);
  layer.set_d_out(7);
  v1::JobOptions options;
  options.set_max_open_rounds(2);
  options.set_method(v1::COMPUTE_METHOD_EIGEN);
  options.set_factor_source(v1::FACTOR_SOURCE_ALL);
  EXPECT_EQ(DescribeLayerMemory(layer, options, 3).contributors, 3);
  EXPECT_TRUE(DescribeLayerMemory(layer, options, 3).eigen);
  options.set_factor_source(v1::FACTOR_SOURCE_ONE_RANK);
  EXPECT_EQ(DescribeLayerMemory(layer, options, 3).contributors, 1);
  EXPECT_EQ(DescribeLayerMemory(layer, options, 3).open_rounds, 2);
}

}  // namespace
}  // namespace kronserve::placement
