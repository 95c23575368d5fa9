#include "worker/factor_accumulator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace kronserve::worker {
namespace {

using ::kronserve::curvature::ConvGeometry;
using ::kronserve::curvature::LayerShape;
using ::kronserve::linalg::ConstMatrixView;

// Sides of images, kernels and channels: products of three fit 64 bits.
constexpr int64_t kLargestSide = int64_t{1} << 20;

absl::Status CheckColumns(const LayerShape& shape, const char* what,
                          int64_t cols, int64_t expected) {
  if (cols == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("layer '", shape.name, "': ", what, " have ", cols,
                   " columns, expected ", expected));
}

absl::Status CheckGeometry(const LayerShape& shape,
                           const ConvGeometry& geometry) {
  const auto is_side = [](int64_t n) { return n >= 1 && n <= kLargestSide; };
  const bool sane = is_side(geometry.in_channels) &&
                    is_side(geometry.in_height) && is_side(geometry.in_width) &&
                    is_side(geometry.kernel_height) &&
                    is_side(geometry.kernel_width) &&
                    is_side(geometry.stride) && is_side(geometry.dilation) &&
                    geometry.padding >= 0 && geometry.padding <= kLargestSide &&
                    geometry.out_height() >= 1 && geometry.out_width() >= 1 &&
                    geometry.in_height + 2 * geometry.padding >
                        geometry.dilation * (geometry.kernel_height - 1) &&
                    geometry.in_width + 2 * geometry.padding >
                        geometry.dilation * (geometry.kernel_width - 1);
  if (!sane) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layer '", shape.name, "': convolution of ", geometry.kernel_height,
        "x", geometry.kernel_width, " over ", geometry.in_channels, " x ",
        geometry.in_height, "x", geometry.in_width, ", stride ",
        geometry.stride, ", padding ", geometry.padding, ", dilation ",
        geometry.dilation, " has no output"));
  }
  const int64_t d_in = geometry.patch_size() + (shape.has_bias ? 1 : 0);
  if (d_in == shape.d_in) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("layer '", shape.name, "': patches with their bias have ",
                   d_in, " columns, registered d_in is ", shape.d_in));
}

bool HasNonFinite(linalg::DenseKernels<float>& kernels,
                  const curvature::FactorSum<float>& sum) {
  return kernels.CountNonFinite(sum.packed.data(),
                                static_cast<int64_t>(sum.packed.size())) > 0;
}

}  // namespace

void DropNonFinite(linalg::DenseKernels<float>& kernels,
                   LayerStatistics* statistics) {
  if (statistics->body != v1::CONTRIBUTION_BODY_DATA) return;
  if (!HasNonFinite(kernels, statistics->input) &&
      !HasNonFinite(kernels, statistics->output)) {
    return;
  }
  *statistics = LayerStatistics();
  statistics->body = v1::CONTRIBUTION_BODY_EMPTY_NON_FINITE;
}

FactorAccumulator::FactorAccumulator(std::vector<LayerShape> layers,
                                     linalg::DenseKernels<float>* kernels)
    : layers_(std::move(layers)), kernels_(kernels), sums_(layers_.size()) {}

absl::Status FactorAccumulator::CheckCommon(int layer, int64_t input_rows,
                                            int64_t hook_rows,
                                            int64_t loss_rows) const {
  const int count = static_cast<int>(layers_.size());
  if (layer < 0 || layer >= count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layer ", layer, " is not one of the job's ", count, " layers"));
  }
  const std::string& name = layers_[layer].name;
  if (input_rows != hook_rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer '", name, "': ", input_rows, " input rows, but ",
                     hook_rows, " gradient rows"));
  }
  if (loss_rows < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layer '", name, "': loss_rows is ", loss_rows, ", at least 1"));
  }
  return absl::OkStatus();
}

absl::Status FactorAccumulator::CheckLinear(
    int layer, ConstMatrixView<float> inputs,
    ConstMatrixView<float> hook_gradients, int64_t loss_rows) const {
  KRONSERVE_RETURN_IF_ERROR(
      CheckCommon(layer, inputs.rows, hook_gradients.rows, loss_rows));
  const LayerShape& shape = layers_[layer];
  KRONSERVE_RETURN_IF_ERROR(CheckColumns(
      shape, "inputs", inputs.cols, shape.d_in - (shape.has_bias ? 1 : 0)));
  return CheckColumns(shape, "output gradients", hook_gradients.cols,
                      shape.d_out);
}

absl::Status FactorAccumulator::AddLinear(int layer,
                                          ConstMatrixView<float> inputs,
                                          ConstMatrixView<float> hook_gradients,
                                          int64_t loss_rows) {
  KRONSERVE_RETURN_IF_ERROR(
      CheckLinear(layer, inputs, hook_gradients, loss_rows));
  Sums& sums = sums_[layer];
  sums.used = true;
  curvature::AccumulateInput(*kernels_, inputs, layers_[layer].has_bias,
                             loss_rows, &sums.input);
  curvature::AccumulateOutputGradient(*kernels_, hook_gradients, loss_rows,
                                      &sums.output);
  return absl::OkStatus();
}

absl::Status FactorAccumulator::CheckConv(int layer,
                                          const ConvGeometry& geometry,
                                          ConstMatrixView<float> images,
                                          ConstMatrixView<float> hook_gradients,
                                          int64_t loss_rows) const {
  KRONSERVE_RETURN_IF_ERROR(
      CheckCommon(layer, images.rows, hook_gradients.rows, loss_rows));
  const LayerShape& shape = layers_[layer];
  KRONSERVE_RETURN_IF_ERROR(CheckGeometry(shape, geometry));
  KRONSERVE_RETURN_IF_ERROR(CheckColumns(
      shape, "images", images.cols,
      geometry.in_channels * geometry.in_height * geometry.in_width));
  // Divided, since the product of three numbers from outside may overflow.
  const int64_t positions = geometry.out_height() * geometry.out_width();
  if (hook_gradients.cols % positions == 0 &&
      hook_gradients.cols / positions == shape.d_out) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("layer '", shape.name, "': output gradients have ",
                   hook_gradients.cols, " columns, expected ", shape.d_out,
                   " channels of ", positions, " positions"));
}

absl::Status FactorAccumulator::AddConv(int layer, const ConvGeometry& geometry,
                                        ConstMatrixView<float> images,
                                        ConstMatrixView<float> hook_gradients,
                                        int64_t loss_rows) {
  KRONSERVE_RETURN_IF_ERROR(
      CheckConv(layer, geometry, images, hook_gradients, loss_rows));
  Sums& sums = sums_[layer];
  sums.used = true;
  curvature::AccumulateConvInput<float>(
      *kernels_, {images.data, images.rows, geometry}, layers_[layer].has_bias,
      loss_rows, &sums.input);
  curvature::AccumulateConvOutputGradient<float>(
      *kernels_,
      {hook_gradients.data, hook_gradients.rows, layers_[layer].d_out,
       geometry.out_height() * geometry.out_width()},
      loss_rows, &sums.output);
  return absl::OkStatus();
}

std::vector<LayerStatistics> FactorAccumulator::TakeAll() {
  std::vector<LayerStatistics> all(layers_.size());
  for (size_t layer = 0; layer < all.size(); ++layer) {
    Sums sums = std::exchange(sums_[layer], {});
    if (!sums.used) continue;
    if (sums.input.rows == 0) {
      all[layer].body = v1::CONTRIBUTION_BODY_EMPTY_NO_ROWS;
      continue;
    }
    all[layer] = {v1::CONTRIBUTION_BODY_DATA, std::move(sums.input),
                  std::move(sums.output)};
    DropNonFinite(*kernels_, &all[layer]);
  }
  return all;
}

}  // namespace kronserve::worker
