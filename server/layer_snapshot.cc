#include "server/layer_snapshot.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/snapshot_check.h"
#include "common/checksum.h"
#include "common/status_macros.h"
#include "placement/job_validation.h"
#include "server/limits.h"

namespace kronserve::server {
namespace {

using Role = v1::SnapshotTensorRole;

bool HasAverages(const v1::LayerSnapshot& meta) { return meta.updates() > 0; }

// Shares the life of the published object, points at one of its tensors.
Tensor Share(const std::shared_ptr<const Published>& owner,
             const std::vector<float>& values) {
  return Tensor(owner, &values);
}

Tensor TensorOf(const LayerContents& contents, Role role) {
  const auto& published = contents.published;
  switch (role) {
    case v1::SNAPSHOT_TENSOR_ROLE_AVERAGE_A:
      return contents.averages.a;
    case v1::SNAPSHOT_TENSOR_ROLE_AVERAGE_G:
      return contents.averages.g;
    case v1::SNAPSHOT_TENSOR_ROLE_FACTORIZATION_A:
      return Share(published, published->factorization.a.values);
    case v1::SNAPSHOT_TENSOR_ROLE_FACTORIZATION_G:
      return Share(published, published->factorization.g.values);
    case v1::SNAPSHOT_TENSOR_ROLE_EIGENVALUES_A:
      return Share(published, published->factorization.values_a);
    default:
      return Share(published, published->factorization.values_g);
  }
}

bool IsDamping(double value) { return std::isfinite(value) && value >= 0; }

absl::Status Contradiction(const v1::LayerSnapshot& meta,
                           const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("snapshot of layer '", meta.layer().name(), "': ", what));
}

absl::Status CheckSchema(const v1::LayerSnapshot& meta,
                         const v1::LayerSpec& layer,
                         const v1::JobOptions& options) {
  placement::Layers saved;
  placement::Layers here;
  *saved.Add() = meta.layer();
  *here.Add() = layer;
  const std::string difference = placement::DescribeDifference(
      here, checkpoint::StateOptions(options), saved,
      checkpoint::StateOptions(meta.options()));
  if (difference.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the snapshot does not fit the job: ", difference));
}

absl::Status CheckNumbers(const v1::LayerSnapshot& meta) {
  const bool merged = meta.updates() > 0;
  if (meta.updates() < 0 || meta.updates() > kMaxStep ||
      !IsStepOrNone(meta.closed_through()) ||
      !IsStepOrNone(meta.first_step()) || !IsStepOrNone(meta.factor_step()) ||
      (merged && (meta.first_step() < 0 || meta.factor_step() < 0))) {
    return Contradiction(
        meta, absl::StrCat(meta.updates(), " merged rounds from step ",
                           meta.first_step(), " to ", meta.factor_step(),
                           ", closed through ", meta.closed_through()));
  }
  if (!IsStepOrNone(meta.failed_for())) {
    return Contradiction(meta,
                         absl::StrCat("the refresh of step ", meta.failed_for(),
                                      " failed, expected -1 to ", kMaxStep));
  }
  if (!IsDamping(meta.damping())) {
    return Contradiction(meta, absl::StrCat("damping is ", meta.damping()));
  }
  for (const v1::ClosedContribution& closed : meta.closed()) {
    const bool known = closed.kind() == v1::FACTOR_KIND_INPUT ||
                       closed.kind() == v1::FACTOR_KIND_OUTPUT;
    if (known && closed.rank() >= 0 && closed.step() >= 0 &&
        closed.step() <= meta.closed_through()) {
      continue;
    }
    return Contradiction(
        meta, absl::StrCat("closed contribution of rank ", closed.rank(),
                           ", step ", closed.step(), ", kind ", closed.kind(),
                           ", closed through ", meta.closed_through()));
  }
  return absl::OkStatus();
}

absl::Status CheckPublished(const v1::LayerSnapshot& meta) {
  if (!meta.has_published()) return absl::OkStatus();
  const v1::SnapshotPublished& published = meta.published();
  if (published.method() != meta.options().method() ||
      published.damping_form() != meta.options().damping_form()) {
    return Contradiction(meta, "what is published has another method");
  }
  if (published.version() < 1 || published.version() > meta.updates()) {
    return Contradiction(
        meta, absl::StrCat("version ", published.version(), " is published, ",
                           meta.updates(), " rounds were merged"));
  }
  if (!IsStep(published.factor_step()) ||
      !IsStepOrNone(published.published_for())) {
    return Contradiction(
        meta,
        absl::StrCat("what is published is of step ", published.factor_step(),
                     " for step ", published.published_for(),
                     ", expected steps up to ", kMaxStep));
  }
  if (published.rung() < v1::REFRESH_RUNG_DIRECT ||
      published.rung() > v1::REFRESH_RUNG_MORE_DAMPING) {
    return Contradiction(meta, absl::StrCat("rung ", published.rung()));
  }
  if (!IsDamping(published.damping()) || !IsDamping(published.damping_a()) ||
      !IsDamping(published.damping_g()) || !std::isfinite(published.pi()) ||
      published.pi() <= 0) {
    return Contradiction(
        meta, absl::StrCat("published damping ", published.damping(), " as ",
                           published.damping_a(), " and ",
                           published.damping_g(), ", pi ", published.pi()));
  }
  return absl::OkStatus();
}

absl::Status CheckTensorList(const v1::LayerSnapshot& meta) {
  const auto expected = checkpoint::ExpectedTensors(meta, HasAverages(meta));
  if (static_cast<size_t>(meta.tensors_size()) != expected.size()) {
    return Contradiction(
        meta, absl::StrCat(meta.tensors_size(), " tensors, expected ",
                           expected.size()));
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    const v1::SnapshotTensor& tensor = meta.tensors(static_cast<int>(i));
    if (tensor.role() == expected[i].role() &&
        tensor.elements() == expected[i].elements()) {
      continue;
    }
    return Contradiction(
        meta,
        absl::StrCat("tensor ", i, " has role ", tensor.role(), " and ",
                     tensor.elements(), " elements, expected role ",
                     expected[i].role(), " and ", expected[i].elements()));
  }
  return absl::OkStatus();
}

curvature::Rung RungOf(int rung) {
  switch (rung) {
    case v1::REFRESH_RUNG_DOUBLE:
      return curvature::Rung::kDouble;
    case v1::REFRESH_RUNG_EIGEN:
      return curvature::Rung::kEigen;
    case v1::REFRESH_RUNG_MORE_DAMPING:
      return curvature::Rung::kMoreDamping;
    default:
      return curvature::Rung::kDirect;
  }
}

linalg::Matrix<float> SquareMatrix(int64_t side, const Tensor& values) {
  linalg::Matrix<float> matrix;
  matrix.rows = side;
  matrix.cols = side;
  matrix.values = *values;
  return matrix;
}

// `image` passed every check.
std::shared_ptr<const Published> UnpackPublished(const LayerImage& image) {
  const v1::SnapshotPublished& meta = image.meta.published();
  auto published = std::make_shared<Published>();
  published->version = meta.version();
  published->factor_step = meta.factor_step();
  curvature::Factorization<float>& result = published->factorization;
  result.form = meta.damping_form() == v1::DAMPING_FORM_EXACT
                    ? curvature::DampingForm::kExact
                    : curvature::DampingForm::kFactored;
  result.rung = RungOf(meta.rung());
  result.damping = meta.damping();
  result.split = {meta.pi(), meta.damping_a(), meta.damping_g(),
                  meta.pi_clipped()};
  result.a = SquareMatrix(image.meta.layer().d_in(), image.tensors[2]);
  result.g = SquareMatrix(image.meta.layer().d_out(), image.tensors[3]);
  if (meta.method() == v1::COMPUTE_METHOD_EIGEN) {
    result.method = curvature::Method::kEigen;
    result.values_a = *image.tensors[4];
    result.values_g = *image.tensors[5];
  }
  return published;
}

}  // namespace

v1::RefreshRung ToProto(curvature::Rung rung) {
  switch (rung) {
    case curvature::Rung::kDirect:
      return v1::REFRESH_RUNG_DIRECT;
    case curvature::Rung::kDouble:
      return v1::REFRESH_RUNG_DOUBLE;
    case curvature::Rung::kEigen:
      return v1::REFRESH_RUNG_EIGEN;
    case curvature::Rung::kMoreDamping:
      return v1::REFRESH_RUNG_MORE_DAMPING;
  }
  return v1::REFRESH_RUNG_UNSPECIFIED;
}

LayerImage ShareLayer(const LayerContents& contents) {
  LayerImage image{contents.meta, {}};
  image.meta.clear_tensors();
  const bool averages = HasAverages(contents.meta);
  for (auto& entry : checkpoint::ExpectedTensors(contents.meta, averages)) {
    image.tensors.push_back(TensorOf(contents, entry.role()));
    *image.meta.add_tensors() = std::move(entry);
  }
  return image;
}

LayerImage PackLayer(const LayerContents& contents) {
  LayerImage image = ShareLayer(contents);
  for (int i = 0; i < image.meta.tensors_size(); ++i) {
    const std::vector<float>& values = *image.tensors[i];
    image.meta.mutable_tensors(i)->set_checksum(
        Checksum(values.data(), values.size() * sizeof(float)));
  }
  return image;
}

absl::Status CheckSnapshot(const v1::LayerSnapshot& meta,
                           const v1::LayerSpec& layer,
                           const v1::JobOptions& options) {
  KRONSERVE_RETURN_IF_ERROR(CheckSchema(meta, layer, options));
  KRONSERVE_RETURN_IF_ERROR(CheckNumbers(meta));
  KRONSERVE_RETURN_IF_ERROR(CheckPublished(meta));
  return CheckTensorList(meta);
}

absl::StatusOr<LayerContents> UnpackLayer(const LayerImage& image,
                                          const v1::LayerSpec& layer,
                                          const v1::JobOptions& options) {
  KRONSERVE_RETURN_IF_ERROR(CheckSnapshot(image.meta, layer, options));
  if (image.tensors.size() != static_cast<size_t>(image.meta.tensors_size())) {
    return Contradiction(
        image.meta, absl::StrCat(image.tensors.size(), " tensors came, ",
                                 image.meta.tensors_size(), " are listed"));
  }
  for (int i = 0; i < image.meta.tensors_size(); ++i) {
    const v1::SnapshotTensor& entry = image.meta.tensors(i);
    const Tensor& tensor = image.tensors[i];
    absl::Status status = absl::InvalidArgumentError("it has another size");
    if (tensor != nullptr &&
        static_cast<int64_t>(tensor->size()) == entry.elements()) {
      status = CheckTensor(*tensor, entry.checksum());
    }
    if (status.ok()) continue;
    return Contradiction(image.meta,
                         absl::StrCat(v1::SnapshotTensorRole_Name(entry.role()),
                                      ": ", std::string(status.message())));
  }
  LayerContents contents;
  contents.meta = image.meta;
  contents.meta.clear_tensors();
  if (HasAverages(image.meta)) {
    contents.averages = {image.tensors[0], image.tensors[1]};
  }
  if (image.meta.has_published()) contents.published = UnpackPublished(image);
  return contents;
}

}  // namespace kronserve::server
