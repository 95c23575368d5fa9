// Random matrices with known properties, in double.
//
// Layer: linalg, tests only.

#ifndef KRONSERVE_LINALG_TESTING_RANDOM_MATRIX_H_
#define KRONSERVE_LINALG_TESTING_RANDOM_MATRIX_H_

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "linalg/matrix_view.h"

namespace kronserve::linalg::testing {

// Standard normal entries.
inline Matrix<double> RandomMatrix(int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  Matrix<double> m(rows, cols);
  for (double& value : m.values) value = normal(generator);
  return m;
}

// M := H M H for the reflection H = I - 2 v v^T, |v| = 1, and symmetric M.
inline void ReflectBothSides(const std::vector<double>& v, Matrix<double>* m) {
  const auto n = static_cast<int64_t>(v.size());
  // H M H = M - 2 v w^T - 2 w v^T + 4 (v^T w) v v^T, w = M v.
  std::vector<double> w(n, 0.0);
  double vw = 0;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) w[i] += (*m)(i, j) * v[j];
    vw += v[i] * w[i];
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      (*m)(i, j) += -2 * (v[i] * w[j] + w[i] * v[j]) + 4 * vw * v[i] * v[j];
      (*m)(j, i) = (*m)(i, j);
    }
  }
}

// Q diag(eigenvalues) Q^T with Q the product of three random reflections: dense
// and symmetric, with exactly these eigenvalues up to rounding.
inline Matrix<double> SymmetricWithEigenvalues(
    const std::vector<double>& eigenvalues, uint32_t seed) {
  const int64_t n = static_cast<int64_t>(eigenvalues.size());
  Matrix<double> m(n, n);
  for (int64_t i = 0; i < n; ++i) m(i, i) = eigenvalues[i];
  for (uint32_t reflection = 0; reflection < 3; ++reflection) {
    Matrix<double> v = RandomMatrix(n, 1, seed * 3 + reflection);
    double norm = 0;
    for (const double value : v.values) norm += value * value;
    norm = std::sqrt(norm);
    for (double& value : v.values) value /= norm;
    ReflectBothSides(v.values, &m);
  }
  return m;
}

// `n` values from 1 to `condition`, evenly spaced in their logarithm.
inline std::vector<double> Spectrum(int64_t n, double condition) {
  std::vector<double> values(n);
  for (int64_t i = 0; i < n; ++i) {
    values[i] = std::pow(condition, n == 1 ? 0.0 : double(i) / double(n - 1));
  }
  return values;
}

template <typename T>
Matrix<T> Cast(const Matrix<double>& m) {
  Matrix<T> result(m.rows, m.cols);
  for (int64_t i = 0; i < m.size(); ++i) {
    result.values[i] = static_cast<T>(m.values[i]);
  }
  return result;
}

}  // namespace kronserve::linalg::testing

#endif  // KRONSERVE_LINALG_TESTING_RANDOM_MATRIX_H_
