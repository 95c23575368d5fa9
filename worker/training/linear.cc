#include <algorithm>

#include "worker/training/layers.h"

namespace kronserve::worker {
namespace {

using linalg::ConstMatrixView;
using linalg::Matrix;
using linalg::Transpose;

// A view has no row stride, so the products run on copies without the bias
// column: cheap beside a product over a batch, and the captured inputs stay as
// the layer before made them.
template <typename T>
class Linear final : public Layer<T> {
 public:
  Linear(linalg::DenseKernels<T>* kernels, const std::string& name,
         int64_t inputs, int64_t outputs)
      : kernels_(kernels), kernel_(outputs, inputs) {
    weights_.shape = {name, outputs, inputs + 1, /*has_bias=*/true};
    weights_.values = Matrix<T>(outputs, inputs + 1);
    weights_.gradient = Matrix<T>(outputs, inputs + 1);
  }

  int64_t output_size() const override { return kernel_.rows; }
  Weights<T>* weights() override { return &weights_; }

  ConstMatrixView<T> Forward(ConstMatrixView<T> input) override {
    weights_.inputs = input;
    Reshape(input.rows, output_size(), &output_);
    for (int64_t i = 0; i < kernel_.rows; ++i) {
      const T* row = &weights_.values(i, 0);
      std::copy(row, row + kernel_.cols, &kernel_(i, 0));
      output_(0, i) = row[kernel_.cols];
    }
    for (int64_t row = 1; row < output_.rows; ++row) {
      std::copy(&output_(0, 0), &output_(0, 0) + output_.cols,
                &output_(row, 0));
    }
    kernels_->Gemm(Transpose::kNo, Transpose::kYes, 1, input, Kernel(), 1,
                   output_.view());
    return output_.view();
  }

  ConstMatrixView<T> Backward(ConstMatrixView<T> gradient,
                              bool want_input_gradient) override {
    weights_.hook_gradients = gradient;
    Reshape(kernel_.rows, kernel_.cols, &kernel_gradient_);
    kernels_->Gemm(Transpose::kYes, Transpose::kNo, 1, gradient,
                   weights_.inputs, 0, kernel_gradient_.view());
    for (int64_t i = 0; i < kernel_.rows; ++i) {
      const T* row = &kernel_gradient_(i, 0);
      std::copy(row, row + kernel_.cols, &weights_.gradient(i, 0));
      T bias = 0;
      for (int64_t j = 0; j < gradient.rows; ++j) bias += gradient(j, i);
      weights_.gradient(i, kernel_.cols) = bias;
    }
    if (!want_input_gradient) return {};
    Reshape(gradient.rows, kernel_.cols, &input_gradient_);
    kernels_->Gemm(Transpose::kNo, Transpose::kNo, 1, gradient, Kernel(), 0,
                   input_gradient_.view());
    return input_gradient_.view();
  }

 private:
  ConstMatrixView<T> Kernel() const { return kernel_.view(); }

  linalg::DenseKernels<T>* const kernels_;
  Weights<T> weights_;
  Matrix<T> kernel_;           // W without the bias column.
  Matrix<T> kernel_gradient_;  // Likewise.
  Matrix<T> output_;
  Matrix<T> input_gradient_;
};

}  // namespace

template <typename T>
std::unique_ptr<Layer<T>> CreateLinear(linalg::DenseKernels<T>* kernels,
                                       const std::string& name, int64_t inputs,
                                       int64_t outputs) {
  return std::make_unique<Linear<T>>(kernels, name, inputs, outputs);
}

template std::unique_ptr<Layer<float>> CreateLinear(
    linalg::DenseKernels<float>*, const std::string&, int64_t, int64_t);
template std::unique_ptr<Layer<double>> CreateLinear(
    linalg::DenseKernels<double>*, const std::string&, int64_t, int64_t);

}  // namespace kronserve::worker
