#include "curvature/kronecker_factors.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "curvature/layer_shape.h"
#include "linalg/dense_kernels.h"
#include "linalg/matrix_view.h"
#include "linalg/packed_triangle.h"

namespace kronserve::curvature {
namespace {

using ::kronserve::linalg::ConstMatrixView;
using ::kronserve::linalg::DenseKernels;
using ::kronserve::linalg::MatrixView;
using ::kronserve::linalg::PackedIndex;
using ::kronserve::linalg::PackedSize;
using ::kronserve::linalg::Transpose;

// A convolution's rows go to the kernels in blocks of at least so many: below,
// a rank-k update is bound by the writes to its result.
constexpr int64_t kRowsPerBlock = 256;

// Memory that is written before it is read, so zeroing it would be waste.
template <typename T>
struct Scratch {
  Scratch(int64_t rows, int64_t cols)
      : memory(new T[rows * cols]), view(memory.get(), rows, cols) {}
  std::unique_ptr<T[]> memory;
  MatrixView<T> view;
};

// Adds up alpha sum x x^T over blocks of rows in full storage, and at last to
// a packed sum. The column of ones of a bias is never stored: its products are
// the column sums and the number of rows.
template <typename T>
class GramAccumulator {
 public:
  GramAccumulator(DenseKernels<T>& kernels, double alpha, int64_t width,
                  bool has_bias)
      : kernels_(kernels),
        alpha_(alpha),
        has_bias_(has_bias),
        gram_(width, width),
        column_sums_(width, 1) {}

  void Add(ConstMatrixView<T> rows) {
    const double beta = rows_ == 0 ? 0 : 1;
    kernels_.SyrkUpper(alpha_, rows, beta, gram_.view);
    if (has_bias_) {
      ones_.resize(rows.rows, T{1});
      kernels_.Gemm(Transpose::kYes, Transpose::kNo, alpha_, rows,
                    {ones_.data(), rows.rows, 1}, beta, column_sums_.view);
    }
    rows_ += rows.rows;
  }

  void Finish(int64_t loss_rows, FactorSum<T>* sum) const {
    sum->loss_rows += loss_rows;
    const int64_t width = gram_.view.cols;
    const int64_t d = width + (has_bias_ ? 1 : 0);
    if (sum->packed.empty()) sum->packed.resize(PackedSize(d), T{0});
    KRONSERVE_CHECK(
        static_cast<int64_t>(sum->packed.size()) == PackedSize(d),
        absl::StrCat("sum of ", sum->packed.size(), " elements, side ", d,
                     " has ", PackedSize(d)));
    if (rows_ == 0) return;
    sum->rows += rows_;
    for (int64_t row = 0; row < width; ++row) {
      T* to = sum->packed.data() + PackedIndex(d, row, row);
      const T* from = gram_.view.data + row * width + row;
      for (int64_t i = 0; i < width - row; ++i) to[i] += from[i];
      if (has_bias_) to[width - row] += column_sums_.view.data[row];
    }
    if (has_bias_) sum->packed.back() += static_cast<T>(alpha_ * rows_);
  }

 private:
  DenseKernels<T>& kernels_;
  const double alpha_;
  const bool has_bias_;
  Scratch<T> gram_;         // [width, width], upper triangle.
  Scratch<T> column_sums_;  // [width, 1].
  std::vector<T> ones_;
  int64_t rows_ = 0;
};

// Images that are turned into rows together.
int64_t ImagesPerBlock(int64_t batch, int64_t positions) {
  const int64_t enough = (kRowsPerBlock + positions - 1) / positions;
  return std::clamp<int64_t>(enough, 1, std::max<int64_t>(batch, 1));
}

// One kernel row at one output position: `kernel_width` pixels of an image
// row, zero where they are outside.
template <typename T>
void CopyKernelRow(const T* image_row, int64_t first_x,
                   const ConvGeometry& geometry, T* to) {
  for (int64_t k = 0; k < geometry.kernel_width; ++k) {
    const int64_t x = first_x + k * geometry.dilation;
    to[k] = x >= 0 && x < geometry.in_width ? image_row[x] : T{0};
  }
}

// The patch of one output position: `to` is [patch_size].
template <typename T>
void UnfoldPosition(const T* image, const ConvGeometry& geometry,
                    int64_t first_y, int64_t first_x, T* to) {
  const int64_t rows = geometry.in_channels * geometry.kernel_height;
  for (int64_t row = 0; row < rows; ++row, to += geometry.kernel_width) {
    const int64_t channel = row / geometry.kernel_height;
    const int64_t k = row % geometry.kernel_height;
    const int64_t y = first_y + k * geometry.dilation;
    if (y < 0 || y >= geometry.in_height) {
      std::fill(to, to + geometry.kernel_width, T{0});
      continue;
    }
    CopyKernelRow(
        image + (channel * geometry.in_height + y) * geometry.in_width, first_x,
        geometry, to);
  }
}

// to := from^T.
template <typename T>
void Transposed(ConstMatrixView<T> from, MatrixView<T> to) {
  for (int64_t row = 0; row < to.rows; ++row) {
    for (int64_t col = 0; col < to.cols; ++col) to(row, col) = from(col, row);
  }
}

}  // namespace

template <typename T>
void AddFactorSum(const FactorSum<T>& other, FactorSum<T>* sum) {
  sum->loss_rows += other.loss_rows;
  sum->rows += other.rows;
  if (other.packed.empty()) return;
  if (sum->packed.empty()) sum->packed.resize(other.packed.size(), T{0});
  KRONSERVE_CHECK(other.packed.size() == sum->packed.size(),
                  absl::StrCat("sums of ", other.packed.size(), " and ",
                               sum->packed.size(), " elements"));
  for (size_t i = 0; i < sum->packed.size(); ++i) {
    sum->packed[i] += other.packed[i];
  }
}

template <typename T>
void AccumulateInput(DenseKernels<T>& kernels, ConstMatrixView<T> inputs,
                     bool has_bias, int64_t loss_rows, FactorSum<T>* sum) {
  GramAccumulator<T> gram(kernels, 1, inputs.cols, has_bias);
  gram.Add(inputs);
  gram.Finish(loss_rows, sum);
}

template <typename T>
void AccumulateOutputGradient(DenseKernels<T>& kernels,
                              ConstMatrixView<T> hook_gradients,
                              int64_t loss_rows, FactorSum<T>* sum) {
  const double n = static_cast<double>(loss_rows);
  GramAccumulator<T> gram(kernels, n * n, hook_gradients.cols,
                          /*has_bias=*/false);
  gram.Add(hook_gradients);
  gram.Finish(loss_rows, sum);
}

template <typename T>
void UnfoldPatches(const T* image, const ConvGeometry& geometry,
                   MatrixView<T> patches) {
  const int64_t out_width = geometry.out_width();
  const int64_t positions = geometry.out_height() * out_width;
  KRONSERVE_CHECK(
      patches.rows == positions && patches.cols == geometry.patch_size(),
      absl::StrCat("patches are [", patches.rows, ", ", patches.cols,
                   "], expected [", positions, ", ", geometry.patch_size(),
                   "]"));
  for (int64_t position = 0; position < positions; ++position) {
    const int64_t y = position / out_width * geometry.stride - geometry.padding;
    const int64_t x = position % out_width * geometry.stride - geometry.padding;
    UnfoldPosition(image, geometry, y, x,
                   patches.data + position * patches.cols);
  }
}

template <typename T>
void AccumulateConvInput(DenseKernels<T>& kernels, const ConvInputs<T>& inputs,
                         bool has_bias, int64_t loss_rows, FactorSum<T>* sum) {
  const ConvGeometry& geometry = inputs.geometry;
  const int64_t width = geometry.patch_size();
  const int64_t positions = geometry.out_height() * geometry.out_width();
  const int64_t image_size =
      geometry.in_channels * geometry.in_height * geometry.in_width;
  const int64_t per_block = ImagesPerBlock(inputs.batch, positions);
  GramAccumulator<T> gram(kernels, 1, width, has_bias);
  Scratch<T> patches(per_block * positions, width);
  for (int64_t first = 0; first < inputs.batch; first += per_block) {
    const int64_t count = std::min(per_block, inputs.batch - first);
    for (int64_t i = 0; i < count; ++i) {
      UnfoldPatches<T>(
          inputs.images + (first + i) * image_size, geometry,
          {patches.view.data + i * positions * width, positions, width});
    }
    gram.Add({patches.view.data, count * positions, width});
  }
  gram.Finish(loss_rows, sum);
}

template <typename T>
void AccumulateConvOutputGradient(DenseKernels<T>& kernels,
                                  const ConvOutputs<T>& outputs,
                                  int64_t loss_rows, FactorSum<T>* sum) {
  const double n = static_cast<double>(loss_rows);
  const int64_t image_size = outputs.d_out * outputs.positions;
  const int64_t per_block = ImagesPerBlock(outputs.batch, outputs.positions);
  GramAccumulator<T> gram(kernels, n * n, outputs.d_out, /*has_bias=*/false);
  Scratch<T> rows(per_block * outputs.positions, outputs.d_out);
  for (int64_t first = 0; first < outputs.batch; first += per_block) {
    const int64_t count = std::min(per_block, outputs.batch - first);
    for (int64_t i = 0; i < count; ++i) {
      Transposed<T>(
          {outputs.hook_gradients + (first + i) * image_size, outputs.d_out,
           outputs.positions},
          {rows.view.data + i * image_size, outputs.positions, outputs.d_out});
    }
    gram.Add({rows.view.data, count * outputs.positions, outputs.d_out});
  }
  gram.Finish(loss_rows, sum);
}

#define KRONSERVE_INSTANTIATE(T)                                               \
  template void AddFactorSum(const FactorSum<T>&, FactorSum<T>*);              \
  template void AccumulateInput(DenseKernels<T>&, ConstMatrixView<T>, bool,    \
                                int64_t, FactorSum<T>*);                       \
  template void AccumulateOutputGradient(DenseKernels<T>&, ConstMatrixView<T>, \
                                         int64_t, FactorSum<T>*);              \
  template void UnfoldPatches(const T*, const ConvGeometry&, MatrixView<T>);   \
  template void AccumulateConvInput(DenseKernels<T>&, const ConvInputs<T>&,    \
                                    bool, int64_t, FactorSum<T>*);             \
  template void AccumulateConvOutputGradient(                                  \
      DenseKernels<T>&, const ConvOutputs<T>&, int64_t, FactorSum<T>*);

KRONSERVE_INSTANTIATE(float)
KRONSERVE_INSTANTIATE(double)
#undef KRONSERVE_INSTANTIATE

}  // namespace kronserve::curvature
