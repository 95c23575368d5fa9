// The parts that a native model is made of.
//
// Layer: worker. May include curvature/ and lower.
// Every matrix is [rows of the batch, values of one sample], row-major; images
// are [channels, height, width] within a row.

#ifndef KRONSERVE_WORKER_TRAINING_LAYER_H_
#define KRONSERVE_WORKER_TRAINING_LAYER_H_

#include <cstdint>
#include <optional>

#include "curvature/layer_shape.h"
#include "linalg/matrix_view.h"

namespace kronserve::worker {

// Parameters of a layer as one matrix, so that its gradient is what the service
// preconditions, and what the last pass through the layer left behind.
template <typename T>
struct Weights {
  curvature::LayerShape shape;
  std::optional<curvature::ConvGeometry> geometry;  // Of a convolution.
  linalg::Matrix<T> values;    // W [d_out, d_in]; the last column is the bias.
  linalg::Matrix<T> gradient;  // Of the mean loss; same shape.

  // Borrowed from the last Forward() and Backward(), until the next ones:
  // the input [rows, d_in without bias] (a convolution: the images), and the
  // gradient of the mean loss in the output [rows, d_out] (a convolution:
  // [rows, d_out * positions]).
  linalg::ConstMatrixView<T> inputs;
  linalg::ConstMatrixView<T> hook_gradients;
};

// One step from a batch to the next batch of values.
//
// Thread safety: none.
// Lifetime:      an input outlives the Backward() that follows; an output lives
//                until the layer's next call.
template <typename T>
class Layer {
 public:
  virtual ~Layer() = default;

  // Values of one sample of the output.
  virtual int64_t output_size() const = 0;

  virtual linalg::ConstMatrixView<T> Forward(
      linalg::ConstMatrixView<T> input) = 0;

  // Takes the gradient of the mean loss in the last output, fills the weights'
  // gradient, and returns the gradient in the last input; an empty view when
  // `want_input_gradient` is false.
  virtual linalg::ConstMatrixView<T> Backward(
      linalg::ConstMatrixView<T> gradient, bool want_input_gradient) = 0;

  // Null for a layer without parameters.
  virtual Weights<T>* weights() { return nullptr; }
};

// Gives `matrix` a shape; keeps its memory where that is large enough. The
// values are not defined afterwards.
template <typename T>
void Reshape(int64_t rows, int64_t cols, linalg::Matrix<T>* matrix) {
  matrix->rows = rows;
  matrix->cols = cols;
  matrix->values.resize(static_cast<size_t>(rows * cols));
}

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_TRAINING_LAYER_H_
