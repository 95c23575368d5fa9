// The worked examples of tests/data/golden, as matrices.
//
// Layer: curvature, tests only. KRONSERVE_GOLDEN_DIR comes from CMake.

#ifndef KRONSERVE_CURVATURE_TESTING_GOLDEN_H_
#define KRONSERVE_CURVATURE_TESTING_GOLDEN_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "linalg/matrix_view.h"
#include "linalg/packed_triangle.h"

namespace kronserve::curvature::testing {

using Json = nlohmann::json;

inline Json LoadGolden(const std::string& name) {
  const std::string path =
      std::string(KRONSERVE_GOLDEN_DIR) + "/" + name + ".json";
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << "cannot read " << path;
  return Json::parse(file);
}

// From a list of rows.
template <typename T>
linalg::Matrix<T> ToMatrix(const Json& rows) {
  linalg::Matrix<T> m(rows.size(), rows.at(0).size());
  for (int64_t row = 0; row < m.rows; ++row) {
    for (int64_t col = 0; col < m.cols; ++col) {
      m(row, col) = static_cast<T>(rows.at(row).at(col).get<double>());
    }
  }
  return m;
}

// The packed upper triangle of a list of rows.
template <typename T>
std::vector<T> ToPacked(const Json& rows) {
  const linalg::Matrix<T> full = ToMatrix<T>(rows);
  std::vector<T> packed(linalg::PackedSize(full.rows));
  linalg::PackUpper<T>(full.view(), packed.data());
  return packed;
}

// What golden values are compared at, relative to the largest entry.
template <typename T>
constexpr double GoldenTolerance() {
  return std::is_same_v<T, double> ? 1e-10 : 1e-5;
}

// Expects entries within `tolerance` times the largest expected one.
template <typename T, typename U>
void ExpectClose(const std::vector<T>& actual, const std::vector<U>& expected,
                 double tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 0;
  for (const U value : expected) {
    largest = std::max<double>(largest, std::abs(value));
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance * largest)
        << what << ", entry " << i;
  }
}

}  // namespace kronserve::curvature::testing

#endif  // KRONSERVE_CURVATURE_TESTING_GOLDEN_H_
