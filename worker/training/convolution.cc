#include <algorithm>

#include "curvature/kronecker_factors.h"
#include "worker/training/layers.h"

namespace kronserve::worker {
namespace {

using curvature::ConvGeometry;
using linalg::ConstMatrixView;
using linalg::Matrix;
using linalg::MatrixView;
using linalg::Transpose;

// Adds `patches` [positions, patch_size] back into `image`: the transpose of
// curvature::UnfoldPatches().
template <typename T>
void FoldPatches(ConstMatrixView<T> patches, const ConvGeometry& geometry,
                 T* image) {
  const int64_t taps = geometry.kernel_height * geometry.kernel_width;
  for (int64_t position = 0; position < patches.rows; ++position) {
    const int64_t top =
        position / geometry.out_width() * geometry.stride - geometry.padding;
    const int64_t left =
        position % geometry.out_width() * geometry.stride - geometry.padding;
    for (int64_t i = 0; i < patches.cols; ++i) {
      const int64_t tap = i % taps;
      const int64_t y = top + tap / geometry.kernel_width * geometry.dilation;
      const int64_t x = left + tap % geometry.kernel_width * geometry.dilation;
      const bool inside =
          y >= 0 && y < geometry.in_height && x >= 0 && x < geometry.in_width;
      if (!inside) continue;
      image[(i / taps * geometry.in_height + y) * geometry.in_width + x] +=
          patches(position, i);
    }
  }
}

// Unfolds each image and multiplies. The patches of the batch are kept for the
// backward pass.
template <typename T>
class Convolution final : public Layer<T> {
 public:
  Convolution(linalg::DenseKernels<T>* kernels, const std::string& name,
              const ConvGeometry& geometry, int64_t out_channels)
      : kernels_(kernels),
        geometry_(geometry),
        positions_(geometry.out_height() * geometry.out_width()),
        image_size_(geometry.in_channels * geometry.in_height *
                    geometry.in_width),
        kernel_(out_channels, geometry.patch_size()) {
    weights_.shape = {name, out_channels, geometry.patch_size() + 1,
                      /*has_bias=*/true, curvature::LayerKind::kConv2d};
    weights_.geometry = geometry;
    weights_.values = Matrix<T>(out_channels, geometry.patch_size() + 1);
    weights_.gradient = Matrix<T>(out_channels, geometry.patch_size() + 1);
  }

  int64_t output_size() const override { return kernel_.rows * positions_; }
  Weights<T>* weights() override { return &weights_; }

  ConstMatrixView<T> Forward(ConstMatrixView<T> input) override {
    weights_.inputs = input;
    SplitWeights();
    Reshape(input.rows * positions_, kernel_.cols, &patches_);
    Reshape(input.rows, output_size(), &output_);
    for (int64_t row = 0; row < input.rows; ++row) {
      curvature::UnfoldPatches(&input(row, 0), geometry_, PatchesOf(row));
      for (int64_t i = 0; i < kernel_.rows; ++i) {
        T* const channel = &output_(row, i * positions_);
        std::fill(channel, channel + positions_,
                  weights_.values(i, kernel_.cols));
      }
      kernels_->Gemm(Transpose::kNo, Transpose::kYes, 1, Kernel(),
                     PatchesOf(row), 1,
                     {&output_(row, 0), kernel_.rows, positions_});
    }
    return output_.view();
  }

  ConstMatrixView<T> Backward(ConstMatrixView<T> gradient,
                              bool want_input_gradient) override {
    weights_.hook_gradients = gradient;
    FillWeightGradient(gradient);
    if (!want_input_gradient) return {};
    Reshape(gradient.rows, image_size_, &input_gradient_);
    std::fill(input_gradient_.values.begin(), input_gradient_.values.end(),
              T(0));
    Reshape(positions_, kernel_.cols, &patch_gradient_);
    for (int64_t row = 0; row < gradient.rows; ++row) {
      kernels_->Gemm(Transpose::kYes, Transpose::kNo, 1, OfImage(gradient, row),
                     Kernel(), 0, patch_gradient_.view());
      FoldPatches<T>(patch_gradient_.view(), geometry_,
                     &input_gradient_(row, 0));
    }
    return input_gradient_.view();
  }

 private:
  ConstMatrixView<T> Kernel() const { return kernel_.view(); }
  MatrixView<T> PatchesOf(int64_t row) {
    return {&patches_(row * positions_, 0), positions_, kernel_.cols};
  }
  ConstMatrixView<T> OfImage(ConstMatrixView<T> gradient, int64_t row) const {
    return {&gradient(row, 0), kernel_.rows, positions_};
  }

  void SplitWeights() {
    for (int64_t i = 0; i < kernel_.rows; ++i) {
      const T* row = &weights_.values(i, 0);
      std::copy(row, row + kernel_.cols, &kernel_(i, 0));
    }
  }

  void FillWeightGradient(ConstMatrixView<T> gradient) {
    Reshape(kernel_.rows, kernel_.cols, &kernel_gradient_);
    for (int64_t row = 0; row < gradient.rows; ++row) {
      kernels_->Gemm(Transpose::kNo, Transpose::kNo, 1, OfImage(gradient, row),
                     PatchesOf(row), row == 0 ? 0 : 1, kernel_gradient_.view());
    }
    for (int64_t i = 0; i < kernel_.rows; ++i) {
      const T* from = &kernel_gradient_(i, 0);
      std::copy(from, from + kernel_.cols, &weights_.gradient(i, 0));
      T bias = 0;
      for (int64_t row = 0; row < gradient.rows; ++row) {
        const T* channel = &gradient(row, i * positions_);
        for (int64_t j = 0; j < positions_; ++j) bias += channel[j];
      }
      weights_.gradient(i, kernel_.cols) = bias;
    }
  }

  linalg::DenseKernels<T>* const kernels_;
  const ConvGeometry geometry_;
  const int64_t positions_;
  const int64_t image_size_;
  Weights<T> weights_;
  Matrix<T> kernel_;           // W without the bias column.
  Matrix<T> kernel_gradient_;  // Likewise.
  Matrix<T> patches_;          // [rows * positions, patch_size]
  Matrix<T> patch_gradient_;   // [positions, patch_size]
  Matrix<T> output_;
  Matrix<T> input_gradient_;
};

}  // namespace

template <typename T>
std::unique_ptr<Layer<T>> CreateConvolution(linalg::DenseKernels<T>* kernels,
                                            const std::string& name,
                                            const ConvGeometry& geometry,
                                            int64_t out_channels) {
  return std::make_unique<Convolution<T>>(kernels, name, geometry,
                                          out_channels);
}

template std::unique_ptr<Layer<float>> CreateConvolution(
    linalg::DenseKernels<float>*, const std::string&, const ConvGeometry&,
    int64_t);
template std::unique_ptr<Layer<double>> CreateConvolution(
    linalg::DenseKernels<double>*, const std::string&, const ConvGeometry&,
    int64_t);

}  // namespace kronserve::worker
