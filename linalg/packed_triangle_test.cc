#include "linalg/packed_triangle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "linalg/matrix_view.h"
#include "linalg/testing/random_matrix.h"

namespace kronserve::linalg {
namespace {

using ::testing::ElementsAre;

TEST(PackedTriangleTest, SizesAndPositionsByHand) {
  EXPECT_EQ(PackedSize(0), 0);
  EXPECT_EQ(PackedSize(1), 1);
  EXPECT_EQ(PackedSize(4), 10);
  EXPECT_EQ(PackedSize(100000), 5000050000);  // Beyond 32 bits.
  // Rows of a 3x3 triangle start at 0, 3, 5.
  EXPECT_EQ(PackedIndex(3, 0, 0), 0);
  EXPECT_EQ(PackedIndex(3, 0, 2), 2);
  EXPECT_EQ(PackedIndex(3, 1, 1), 3);
  EXPECT_EQ(PackedIndex(3, 2, 2), 5);
}

TEST(PackedTriangleTest, PacksWithoutReadingTheLowerTriangle) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> full = {1, 2, 3, nan, 4, 5, nan, nan, 6};
  std::vector<float> packed(6);
  PackUpper<float>({full.data(), 3, 3}, packed.data());
  EXPECT_THAT(packed, ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(PackedTriangleTest, UnpacksBothTriangles) {
  const std::vector<double> packed = {1, 2, 3, 4, 5, 6};
  std::vector<double> full(9, -1);
  UnpackSymmetric<double>(packed.data(), {full.data(), 3, 3});
  EXPECT_THAT(full, ElementsAre(1, 2, 3, 2, 4, 5, 3, 5, 6));
}

TEST(PackedTriangleTest, RoundTripIsExactAtEverySizeAroundATile) {
  for (const int64_t n : {1, 2, 31, 32, 33, 64, 100}) {
    const Matrix<float> random =
        testing::Cast<float>(testing::RandomMatrix(PackedSize(n), 1, 8));
    Matrix<float> full(n, n);
    UnpackSymmetric<float>(random.values.data(), full.view());
    for (int64_t i = 0; i < n * n; ++i) {
      const auto [row, col] = std::minmax({i / n, i % n});
      ASSERT_EQ(full.values[i], random.values[PackedIndex(n, row, col)])
          << "n = " << n << ", element " << i;
    }
    std::vector<float> packed(PackedSize(n));
    PackUpper<float>(full.view(), packed.data());
    ASSERT_EQ(packed, random.values) << "n = " << n;
  }
}

TEST(PackedTriangleTest, TraceIsInDouble) {
  // In float 2^24 + 1 + 1 stays at 2^24.
  const std::vector<float> packed = {16777216, 9, 9, 1, 9, 1};
  EXPECT_EQ(PackedTrace(packed.data(), 3), 16777218.0);
}

}  // namespace
}  // namespace kronserve::linalg
