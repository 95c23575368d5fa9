// Layers without parameters.

#include <algorithm>
#include <cmath>
#include <vector>

#include "worker/training/layers.h"

namespace kronserve::worker {
namespace {

using linalg::ConstMatrixView;
using linalg::Matrix;

template <typename T>
class Activation final : public Layer<T> {
 public:
  Activation(ActivationKind kind, int64_t size) : kind_(kind), size_(size) {}

  int64_t output_size() const override { return size_; }

  ConstMatrixView<T> Forward(ConstMatrixView<T> input) override {
    Reshape(input.rows, input.cols, &output_);
    std::transform(input.data, input.data + input.size(),
                   output_.values.begin(), [this](T x) {
                     // A NaN stays one: a broken run must be seen.
                     return kind_ == ActivationKind::kTanh ? std::tanh(x)
                            : x < 0                        ? T(0)
                                                           : x;
                   });
    return output_.view();
  }

  ConstMatrixView<T> Backward(ConstMatrixView<T> gradient,
                              bool want_input_gradient) override {
    if (!want_input_gradient) return {};
    Reshape(gradient.rows, gradient.cols, &input_gradient_);
    std::transform(gradient.data, gradient.data + gradient.size(),
                   output_.values.begin(), input_gradient_.values.begin(),
                   [this](T g, T y) {
                     if (kind_ == ActivationKind::kTanh) return g * (1 - y * y);
                     return y > 0 ? g : T(0);
                   });
    return input_gradient_.view();
  }

 private:
  const ActivationKind kind_;
  const int64_t size_;
  Matrix<T> output_;
  Matrix<T> input_gradient_;
};

template <typename T>
class MaxPool final : public Layer<T> {
 public:
  MaxPool(int64_t channels, int64_t height, int64_t width)
      : channels_(channels), height_(height), width_(width) {}

  int64_t output_size() const override {
    return channels_ * (height_ / 2) * (width_ / 2);
  }

  ConstMatrixView<T> Forward(ConstMatrixView<T> input) override {
    Reshape(input.rows, output_size(), &output_);
    winners_.resize(output_.values.size());
    for (int64_t row = 0; row < input.rows; ++row) {
      const T* image = &input(row, 0);
      for (int64_t i = 0; i < output_size(); ++i) {
        const int64_t winner = WinnerOf(image, i);
        winners_[row * output_size() + i] = winner;
        output_(row, i) = image[winner];
      }
    }
    return output_.view();
  }

  ConstMatrixView<T> Backward(ConstMatrixView<T> gradient,
                              bool want_input_gradient) override {
    if (!want_input_gradient) return {};
    Reshape(gradient.rows, channels_ * height_ * width_, &input_gradient_);
    std::fill(input_gradient_.values.begin(), input_gradient_.values.end(),
              T(0));
    for (int64_t row = 0; row < gradient.rows; ++row) {
      for (int64_t i = 0; i < gradient.cols; ++i) {
        input_gradient_(row, winners_[row * gradient.cols + i]) =
            gradient(row, i);
      }
    }
    return input_gradient_.view();
  }

 private:
  // Position in `image` of the largest value behind output `i`; the first of
  // equal ones.
  int64_t WinnerOf(const T* image, int64_t i) const {
    const int64_t out_width = width_ / 2;
    const int64_t rows_above = i / out_width;  // Over all channels.
    const int64_t channel = rows_above / (height_ / 2);
    const int64_t y = 2 * (rows_above % (height_ / 2));
    const int64_t x = 2 * (i % out_width);
    const int64_t first = (channel * height_ + y) * width_ + x;
    int64_t winner = first;
    for (const int64_t other :
         {first + 1, first + width_, first + width_ + 1}) {
      if (!(image[other] <= image[winner])) winner = other;
    }
    return winner;
  }

  const int64_t channels_;
  const int64_t height_;
  const int64_t width_;
  std::vector<int64_t> winners_;  // [rows * output_size]
  Matrix<T> output_;
  Matrix<T> input_gradient_;
};

}  // namespace

template <typename T>
std::unique_ptr<Layer<T>> CreateActivation(ActivationKind kind, int64_t size) {
  return std::make_unique<Activation<T>>(kind, size);
}

template <typename T>
std::unique_ptr<Layer<T>> CreateMaxPool(int64_t channels, int64_t height,
                                        int64_t width) {
  return std::make_unique<MaxPool<T>>(channels, height, width);
}

template std::unique_ptr<Layer<float>> CreateActivation(ActivationKind,
                                                        int64_t);
template std::unique_ptr<Layer<double>> CreateActivation(ActivationKind,
                                                         int64_t);
template std::unique_ptr<Layer<float>> CreateMaxPool(int64_t, int64_t, int64_t);
template std::unique_ptr<Layer<double>> CreateMaxPool(int64_t, int64_t,
                                                      int64_t);

}  // namespace kronserve::worker
