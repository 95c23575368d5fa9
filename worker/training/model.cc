#include "worker/training/model.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "worker/training/loss.h"
#include "worker/training/random.h"

namespace kronserve::worker {
namespace {

// Draws row by row; the bias column stays 0.
template <typename T>
void DrawWeights(double variance, RandomStream* random, Weights<T>* weights) {
  const double scale = std::sqrt(variance);
  for (int64_t i = 0; i < weights->shape.d_out; ++i) {
    for (int64_t j = 0; j + 1 < weights->shape.d_in; ++j) {
      weights->values(i, j) = T(scale * random->Normal());
    }
  }
}

double HeVariance(int64_t fan_in) { return 2.0 / double(fan_in); }
double XavierVariance(int64_t fan_in, int64_t fan_out) {
  return 2.0 / double(fan_in + fan_out);
}

template <typename T>
using Layers = std::vector<std::unique_ptr<Layer<T>>>;

// Activation and pool on top of a convolution, whose weights are drawn.
template <typename T>
void AddConvBlock(std::unique_ptr<Layer<T>> convolution,
                  const curvature::ConvGeometry& geometry, RandomStream* random,
                  Layers<T>* layers) {
  const int64_t out_channels = convolution->weights()->shape.d_out;
  DrawWeights(HeVariance(geometry.patch_size()), random,
              convolution->weights());
  layers->push_back(std::move(convolution));
  layers->push_back(CreateActivation<T>(ActivationKind::kRelu,
                                        layers->back()->output_size()));
  layers->push_back(CreateMaxPool<T>(out_channels, geometry.out_height(),
                                     geometry.out_width()));
}

}  // namespace

template <typename T>
Model<T>::Model(std::vector<std::unique_ptr<Layer<T>>> layers)
    : layers_(std::move(layers)) {
  for (const auto& layer : layers_) {
    if (layer->weights() != nullptr) weights_.push_back(layer->weights());
  }
}

template <typename T>
linalg::ConstMatrixView<T> Model<T>::Forward(linalg::ConstMatrixView<T> batch) {
  logits_ = batch;
  for (const auto& layer : layers_) logits_ = layer->Forward(logits_);
  return logits_;
}

template <typename T>
double Model<T>::Backward(const uint8_t* labels) {
  Reshape(logits_.rows, logits_.cols, &loss_gradient_);
  const double loss =
      SoftmaxCrossEntropy<T>(logits_, labels, loss_gradient_.view());
  linalg::ConstMatrixView<T> gradient = loss_gradient_.view();
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    gradient = (*layer)->Backward(gradient, layer + 1 != layers_.rend());
  }
  return loss;
}

template <typename T>
std::vector<curvature::LayerShape> Model<T>::shapes() const {
  std::vector<curvature::LayerShape> shapes;
  for (const Weights<T>* weights : weights_) shapes.push_back(weights->shape);
  return shapes;
}

template <typename T>
std::vector<linalg::MatrixView<T>> Model<T>::parameters() const {
  std::vector<linalg::MatrixView<T>> views;
  for (Weights<T>* weights : weights_) views.push_back(weights->values.view());
  return views;
}

template <typename T>
Model<T> CreateMlp(linalg::DenseKernels<T>* kernels,
                   const std::vector<int64_t>& sizes, ActivationKind activation,
                   uint64_t seed) {
  KRONSERVE_CHECK(sizes.size() >= 2, "an MLP has inputs and classes");
  RandomStream random(seed, /*stream=*/0);
  Layers<T> layers;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    const bool is_last = i + 2 == sizes.size();
    layers.push_back(CreateLinear(kernels, absl::StrCat("fc", i + 1), sizes[i],
                                  sizes[i + 1]));
    const bool before_relu = !is_last && activation == ActivationKind::kRelu;
    DrawWeights(before_relu ? HeVariance(sizes[i])
                            : XavierVariance(sizes[i], sizes[i + 1]),
                &random, layers.back()->weights());
    if (!is_last) {
      layers.push_back(CreateActivation<T>(activation, sizes[i + 1]));
    }
  }
  return Model<T>(std::move(layers));
}

template <typename T>
Model<T> CreateConvnet(linalg::DenseKernels<T>* kernels,
                       const ConvnetShape& shape, uint64_t seed) {
  KRONSERVE_CHECK(shape.height >= 4 && shape.width >= 4,
                  "the convolutional network pools twice");
  RandomStream random(seed, /*stream=*/0);
  Layers<T> layers;
  curvature::ConvGeometry geometry;
  geometry.in_channels = shape.channels;
  geometry.in_height = shape.height;
  geometry.in_width = shape.width;
  geometry.kernel_height = geometry.kernel_width = 3;
  geometry.padding = 1;
  AddConvBlock(CreateConvolution(kernels, "conv1", geometry, shape.conv1),
               geometry, &random, &layers);
  geometry.in_channels = shape.conv1;
  geometry.in_height /= 2;
  geometry.in_width /= 2;
  AddConvBlock(CreateConvolution(kernels, "conv2", geometry, shape.conv2),
               geometry, &random, &layers);
  const int64_t features = layers.back()->output_size();
  layers.push_back(CreateLinear(kernels, "fc", features, shape.classes));
  DrawWeights(XavierVariance(features, shape.classes), &random,
              layers.back()->weights());
  return Model<T>(std::move(layers));
}

template class Model<float>;
template class Model<double>;
template Model<float> CreateMlp(linalg::DenseKernels<float>*,
                                const std::vector<int64_t>&, ActivationKind,
                                uint64_t);
template Model<double> CreateMlp(linalg::DenseKernels<double>*,
                                 const std::vector<int64_t>&, ActivationKind,
                                 uint64_t);
template Model<float> CreateConvnet(linalg::DenseKernels<float>*,
                                    const ConvnetShape&, uint64_t);
template Model<double> CreateConvnet(linalg::DenseKernels<double>*,
                                     const ConvnetShape&, uint64_t);

}  // namespace kronserve::worker
