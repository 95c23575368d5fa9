// Native models: a multi-layer perceptron and a small convolutional network.
//
// Layer: worker. May include curvature/ and lower.
//
//   auto model = CreateMlp<float>(kernels, {784, 256, 10}, kRelu, seed);
//   model.Forward(batch);                    // [rows, 784] -> [rows, 10]
//   const double loss = model.Backward(labels);
//   for (Weights<float>* layer : model.weights())
//     layer->gradient, layer->inputs, layer->hook_gradients are filled.

#ifndef KRONSERVE_WORKER_TRAINING_MODEL_H_
#define KRONSERVE_WORKER_TRAINING_MODEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "curvature/layer_shape.h"
#include "linalg/dense_kernels.h"
#include "worker/training/layer.h"
#include "worker/training/layers.h"

namespace kronserve::worker {

// A chain of layers under a softmax cross-entropy.
//
// Thread safety: none.
template <typename T>
class Model {
 public:
  explicit Model(std::vector<std::unique_ptr<Layer<T>>> layers);

  // The logits [rows, classes] of `batch`, which outlives the Backward() that
  // follows. Valid until the next Forward().
  linalg::ConstMatrixView<T> Forward(linalg::ConstMatrixView<T> batch);

  // After Forward(): fills the weights' gradients and captures, and returns
  // the mean loss of the batch against `labels` [rows].
  double Backward(const uint8_t* labels);

  // Layers with parameters, from the input on.
  const std::vector<Weights<T>*>& weights() const { return weights_; }
  std::vector<curvature::LayerShape> shapes() const;
  std::vector<linalg::MatrixView<T>> parameters() const;

 private:
  std::vector<std::unique_ptr<Layer<T>>> layers_;
  std::vector<Weights<T>*> weights_;
  linalg::ConstMatrixView<T> logits_;
  linalg::Matrix<T> loss_gradient_;
};

// Linear layers "fc1", "fc2", ... of these sizes, an activation between any
// two. Weights are normal with variance 2 / fan_in before a ReLU (He), else 2 /
// (fan_in + fan_out) (Xavier); biases are 0. The same for any T but rounding.
//
//   sizes    at least two: inputs, hidden layers, classes.
//   kernels  outlives the model.
template <typename T>
Model<T> CreateMlp(linalg::DenseKernels<T>* kernels,
                   const std::vector<int64_t>& sizes, ActivationKind activation,
                   uint64_t seed);

struct ConvnetShape {
  int64_t channels = 1;
  int64_t height = 28;
  int64_t width = 28;
  // Output channels of the two convolutions.
  int64_t conv1 = 8;
  int64_t conv2 = 16;
  int64_t classes = 10;
};

// Twice (3 x 3 convolution with padding 1, ReLU, 2 x 2 max-pool), then a linear
// layer: "conv1", "conv2", "fc". Height and width are at least 4. Weights as in
// CreateMlp().
template <typename T>
Model<T> CreateConvnet(linalg::DenseKernels<T>* kernels,
                       const ConvnetShape& shape, uint64_t seed);

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_TRAINING_MODEL_H_
