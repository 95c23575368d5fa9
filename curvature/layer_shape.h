// What the mathematics needs to know of a layer.
//
// Layer: curvature. May include linalg/ and common/.

#ifndef KRONSERVE_CURVATURE_LAYER_SHAPE_H_
#define KRONSERVE_CURVATURE_LAYER_SHAPE_H_

#include <cstdint>
#include <string>

namespace kronserve::curvature {

enum class LayerKind { kLinear, kConv2d };

// A weight matrix W [d_out, d_in]; with a bias, its last column.
struct LayerShape {
  std::string name;
  int64_t d_out = 0;
  int64_t d_in = 0;  // The bias column is counted.
  bool has_bias = false;
  LayerKind kind = LayerKind::kLinear;  // A convolution's kernel is flattened.

  int64_t gradient_size() const { return d_out * d_in; }
};

// Geometry of a two-dimensional convolution. Images are [channels, height,
// width]; patches are unfolded in the order (channel, kernel row, kernel
// column), as weight.view(out, -1) has it.
struct ConvGeometry {
  int64_t in_channels = 0;
  int64_t in_height = 0;
  int64_t in_width = 0;
  int64_t kernel_height = 1;
  int64_t kernel_width = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;

  int64_t out_height() const {
    return (in_height + 2 * padding - dilation * (kernel_height - 1) - 1) /
               stride +
           1;
  }
  int64_t out_width() const {
    return (in_width + 2 * padding - dilation * (kernel_width - 1) - 1) /
               stride +
           1;
  }
  int64_t patch_size() const {
    return in_channels * kernel_height * kernel_width;
  }
};

}  // namespace kronserve::curvature

#endif  // KRONSERVE_CURVATURE_LAYER_SHAPE_H_
