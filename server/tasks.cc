#include "server/tasks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "common/status_macros.h"
#include "linalg/packed_triangle.h"

namespace kronserve::server {
namespace {

int64_t CountNonFinite(const std::vector<float>& values) {
  return std::count_if(values.begin(), values.end(),
                       [](float value) { return !std::isfinite(value); });
}

absl::StatusOr<std::vector<float>> SumParts(
    const std::vector<MergeInput::Part>& parts, int64_t d, double scale) {
  int64_t rows = 0;
  for (const MergeInput::Part& part : parts) rows += part.rows;
  if (rows < 1) {
    return absl::FailedPreconditionError("merged rounds have no rows");
  }
  std::vector<float> batch(linalg::PackedSize(d));
  int64_t too_large = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    double sum = 0;
    for (const MergeInput::Part& part : parts) sum += (*part.sum)[i];
    const double value = sum * scale / static_cast<double>(rows);
    if (std::abs(value) <= std::numeric_limits<float>::max()) {
      batch[i] = static_cast<float>(value);
    } else {
      ++too_large;
    }
  }
  if (too_large > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        too_large, " entries of the merged factor do not fit into a float"));
  }
  return batch;
}

absl::StatusOr<Tensor> MergeFactor(const MergeInput& input,
                                   const std::vector<MergeInput::Part>& parts,
                                   int64_t d, double scale,
                                   const Tensor& before) {
  KRONSERVE_ASSIGN_OR_RETURN(const std::vector<float> batch,
                             SumParts(parts, d, scale));
  auto average = std::make_shared<std::vector<float>>();
  if (before != nullptr) *average = *before;
  curvature::UpdateAverage({input.init, input.factor_decay}, input.k, d, batch,
                           average.get());
  return Tensor(std::move(average));
}

}  // namespace

absl::StatusOr<TaskTools> CreateTaskTools(linalg::Device device) {
  TaskTools tools;
  KRONSERVE_ASSIGN_OR_RETURN(tools.working,
                             linalg::CreateLinearAlgebra<float>(device));
  KRONSERVE_ASSIGN_OR_RETURN(tools.wide,
                             linalg::CreateLinearAlgebra<double>(device));
  return tools;
}

absl::Status CheckTensor(const std::vector<float>& values, uint64_t checksum) {
  const uint64_t found = Checksum(values.data(), values.size() * sizeof(float));
  if (found != checksum) {
    return absl::InvalidArgumentError(
        absl::StrCat("checksum is ", absl::Hex(found), ", the header says ",
                     absl::Hex(checksum), ": damaged on the way"));
  }
  if (const int64_t bad = CountNonFinite(values); bad > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        bad, " of ", values.size(), " entries are NaN or infinite"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Averages> RunMerge(const MergeInput& input) {
  Averages averages;
  KRONSERVE_ASSIGN_OR_RETURN(
      averages.a,
      MergeFactor(input, input.a, input.d_in, input.scale_a, input.before.a));
  KRONSERVE_ASSIGN_OR_RETURN(
      averages.g,
      MergeFactor(input, input.g, input.d_out, input.scale_g, input.before.g));
  return averages;
}

absl::StatusOr<curvature::Factorization<float>> RunRefresh(
    TaskTools& tools, const RefreshInput& input) {
  return curvature::Refresh<float>(
      {&tools.working, &tools.wide}, {*input.averages.a, input.d_in},
      {*input.averages.g, input.d_out}, input.options);
}

absl::StatusOr<PreconditionOutput> RunPrecondition(
    TaskTools& tools, const PreconditionInput& input) {
  auto value = std::make_shared<std::vector<float>>(*input.gradient);
  PreconditionOutput output;
  KRONSERVE_ASSIGN_OR_RETURN(
      output.inner_product,
      curvature::Precondition<float>(tools.working, *input.factorization,
                                     input.damping,
                                     {value->data(), input.rows, input.cols}));
  output.checksum = Checksum(value->data(), value->size() * sizeof(float));
  output.value = std::move(value);
  return output;
}

}  // namespace kronserve::server
