// The layers there are.
//
// Layer: worker. May include curvature/ and lower.
// Weights start at zero; worker/training/model.h draws them.

#ifndef KRONSERVE_WORKER_TRAINING_LAYERS_H_
#define KRONSERVE_WORKER_TRAINING_LAYERS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "linalg/dense_kernels.h"
#include "worker/training/layer.h"

namespace kronserve::worker {

enum class ActivationKind { kRelu, kTanh };

// y = W [x; 1]. `kernels` outlives the layer.
template <typename T>
std::unique_ptr<Layer<T>> CreateLinear(linalg::DenseKernels<T>* kernels,
                                       const std::string& name, int64_t inputs,
                                       int64_t outputs);

// A convolution with bias over images of `geometry`; output [out_channels,
// out_height, out_width]. `kernels` outlives the layer.
template <typename T>
std::unique_ptr<Layer<T>> CreateConvolution(
    linalg::DenseKernels<T>* kernels, const std::string& name,
    const curvature::ConvGeometry& geometry, int64_t out_channels);

// Applies the function to each of `size` values per sample.
template <typename T>
std::unique_ptr<Layer<T>> CreateActivation(ActivationKind kind, int64_t size);

// The largest of each 2 x 2 square; an odd last row or column is left out.
template <typename T>
std::unique_ptr<Layer<T>> CreateMaxPool(int64_t channels, int64_t height,
                                        int64_t width);

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_TRAINING_LAYERS_H_
