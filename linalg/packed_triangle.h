// Symmetric matrices as their upper triangle, row by row: the form in which
// factors are averaged and sent.
//
// Layer: linalg. May include common/ and nothing else of this repository.

#ifndef KRONSERVE_LINALG_PACKED_TRIANGLE_H_
#define KRONSERVE_LINALG_PACKED_TRIANGLE_H_

#include <cstdint>

#include "linalg/matrix_view.h"

namespace kronserve::linalg {

// Elements of the packed triangle of an [n, n] matrix: n (n + 1) / 2.
constexpr int64_t PackedSize(int64_t n) { return n * (n + 1) / 2; }

// Position of element (row, col), row <= col, of an [n, n] matrix.
constexpr int64_t PackedIndex(int64_t n, int64_t row, int64_t col) {
  return row * n - row * (row - 1) / 2 + (col - row);
}

// Copies the upper triangle of `full` ([n, n]; the lower one is not read) to
// `packed` [PackedSize(n)].
template <typename T>
void PackUpper(ConstMatrixView<T> full, T* packed);

// Writes both triangles of `full` ([n, n]) from `packed`; exactly symmetric.
template <typename T>
void UnpackSymmetric(const T* packed, MatrixView<T> full);

// Sum of the diagonal, in double.
template <typename T>
double PackedTrace(const T* packed, int64_t n);

}  // namespace kronserve::linalg

#endif  // KRONSERVE_LINALG_PACKED_TRIANGLE_H_
