// From layer inputs and output gradients to the sums that factors are made of.
//
// Layer: curvature. May include linalg/ and common/.
// A = S_A / N and G = S_G / R, with N = loss_rows (rows the loss was averaged
// over), R = unmasked rows, S_A = sum a~ a~^T and S_G = sum g g^T, where a~
// has a final 1 for the bias and g = N g^ undoes the mean in the gradient g^
// that a backward hook sees. Workers send the sums; the owner divides once.
// Source: METHOD.md D1; Martens & Grosse, arXiv 1503.05671; Grosse & Martens,
// arXiv 1602.01407 (convolutions, KFC).

#ifndef KRONSERVE_CURVATURE_KRONECKER_FACTORS_H_
#define KRONSERVE_CURVATURE_KRONECKER_FACTORS_H_

#include <cstdint>
#include <vector>

#include "curvature/layer_shape.h"
#include "linalg/dense_kernels.h"
#include "linalg/matrix_view.h"

namespace kronserve::curvature {

// Raw sums of one factor over any number of micro-batches, ranks and nodes:
// merging two is adding all three members.
template <typename T>
struct FactorSum {
  std::vector<T> packed;  // Upper triangle, linalg::PackedSize(d) elements.
  int64_t loss_rows = 0;  // N.
  int64_t rows = 0;       // R.
};

// Adds `other` to `sum`; an empty `sum` becomes `other`. Sizes must agree.
template <typename T>
void AddFactorSum(const FactorSum<T>& other, FactorSum<T>* sum);

// Adds sum a~ a~^T of `inputs` [rows, d_in without bias] to `sum` (of side
// d_in). `loss_rows` is this batch's N.
template <typename T>
void AccumulateInput(linalg::DenseKernels<T>& kernels,
                     linalg::ConstMatrixView<T> inputs, bool has_bias,
                     int64_t loss_rows, FactorSum<T>* sum);

// Adds sum g g^T with g = loss_rows * hook to `sum` (of side d_out).
//
//   hook_gradients  [rows, d_out], the gradient of the mean loss.
template <typename T>
void AccumulateOutputGradient(linalg::DenseKernels<T>& kernels,
                              linalg::ConstMatrixView<T> hook_gradients,
                              int64_t loss_rows, FactorSum<T>* sum);

// Unfolds `image` [channels, height, width] into `patches`
// [out_height * out_width, patch_size]; what lies outside is zero.
template <typename T>
void UnfoldPatches(const T* image, const ConvGeometry& geometry,
                   linalg::MatrixView<T> patches);

// The images that a convolution saw.
template <typename T>
struct ConvInputs {
  const T* images;  // [batch, in_channels, in_height, in_width]
  int64_t batch;
  const ConvGeometry& geometry;
};

// The gradients of its outputs.
template <typename T>
struct ConvOutputs {
  const T* hook_gradients;  // [batch, d_out, positions]
  int64_t batch;
  int64_t d_out;
  int64_t positions;
};

// As AccumulateInput() for a convolution, one image unfolded at a time: rows
// grows by batch * out_height * out_width.
template <typename T>
void AccumulateConvInput(linalg::DenseKernels<T>& kernels,
                         const ConvInputs<T>& inputs, bool has_bias,
                         int64_t loss_rows, FactorSum<T>* sum);

// As AccumulateOutputGradient() for a convolution.
template <typename T>
void AccumulateConvOutputGradient(linalg::DenseKernels<T>& kernels,
                                  const ConvOutputs<T>& outputs,
                                  int64_t loss_rows, FactorSum<T>* sum);

}  // namespace kronserve::curvature

#endif  // KRONSERVE_CURVATURE_KRONECKER_FACTORS_H_
