// Borrowed dense matrices.
//
// Layer: linalg. May include common/ and nothing else of this repository.

#ifndef KRONSERVE_LINALG_MATRIX_VIEW_H_
#define KRONSERVE_LINALG_MATRIX_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace kronserve::linalg {

// A dense row-major matrix that somebody else owns.
//
// Thread safety: as a pointer.
// Lifetime:      the memory outlives the view.
template <typename T>
struct MatrixView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;

  MatrixView() = default;
  MatrixView(T* data, int64_t rows, int64_t cols)
      : data(data), rows(rows), cols(cols) {}
  // A writable view is also a readable one.
  template <typename U, typename = std::enable_if_t<
                            std::is_same_v<const U, T> && !std::is_const_v<U>>>
  MatrixView(const MatrixView<U>& other)  // NOLINT: implicit on purpose
      : data(other.data), rows(other.rows), cols(other.cols) {}

  T& operator()(int64_t row, int64_t col) const {
    return data[row * cols + col];
  }
  int64_t size() const { return rows * cols; }
};

template <typename T>
using ConstMatrixView = MatrixView<const T>;

// A dense row-major matrix that owns its memory, zero at first.
template <typename T>
struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<T> values;

  Matrix() = default;
  Matrix(int64_t rows, int64_t cols)
      : rows(rows), cols(cols), values(static_cast<std::size_t>(rows * cols)) {}

  T& operator()(int64_t row, int64_t col) { return values[row * cols + col]; }
  const T& operator()(int64_t row, int64_t col) const {
    return values[row * cols + col];
  }
  int64_t size() const { return rows * cols; }
  MatrixView<T> view() { return {values.data(), rows, cols}; }
  ConstMatrixView<T> view() const { return {values.data(), rows, cols}; }
};

}  // namespace kronserve::linalg

#endif  // KRONSERVE_LINALG_MATRIX_VIEW_H_
