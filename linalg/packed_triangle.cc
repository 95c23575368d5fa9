#include "linalg/packed_triangle.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "linalg/matrix_view.h"
#include "linalg/tiles.h"

namespace kronserve::linalg {
namespace {

template <typename T>
void CheckSquare(ConstMatrixView<T> m) {
  KRONSERVE_CHECK(m.rows == m.cols,
                  absl::StrCat("a packed matrix is square, got [", m.rows, ", ",
                               m.cols, "]"));
}

}  // namespace

template <typename T>
void PackUpper(ConstMatrixView<T> full, T* packed) {
  CheckSquare<T>(full);
  const int64_t n = full.rows;
  for (int64_t row = 0; row < n; ++row) {
    const T* begin = full.data + row * n + row;
    packed = std::copy(begin, begin + (n - row), packed);
  }
}

template <typename T>
void UnpackSymmetric(const T* packed, MatrixView<T> full) {
  CheckSquare<T>(full);
  const int64_t n = full.rows;
  for (int64_t row = 0; row < n; ++row) {
    const T* begin = packed + PackedIndex(n, row, row);
    std::copy(begin, begin + (n - row), full.data + row * n + row);
  }
  VisitBelowDiagonal(
      n, [&](int64_t row, int64_t col) { full(row, col) = full(col, row); });
}

template <typename T>
double PackedTrace(const T* packed, int64_t n) {
  double trace = 0;
  for (int64_t i = 0; i < n; ++i) trace += packed[PackedIndex(n, i, i)];
  return trace;
}

template void PackUpper(ConstMatrixView<float>, float*);
template void PackUpper(ConstMatrixView<double>, double*);
template void UnpackSymmetric(const float*, MatrixView<float>);
template void UnpackSymmetric(const double*, MatrixView<double>);
template double PackedTrace(const float*, int64_t);
template double PackedTrace(const double*, int64_t);

}  // namespace kronserve::linalg
