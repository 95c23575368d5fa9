#include "checkpoint/snapshot_check.h"

#include <cstdint>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "checkpoint/names.h"
#include "common/status_macros.h"

namespace kronserve::checkpoint {
namespace {

// 31 bits, so that products of two sides have 62.
constexpr int64_t kMaxSide = (int64_t{1} << 31) - 1;

absl::Status Bad(const std::string& what) {
  return absl::InvalidArgumentError(what);
}

int64_t Packed(int64_t d) { return d * (d + 1) / 2; }

// Elements of a tensor of this role; 0 for a role that is not known.
int64_t ElementsOf(const v1::LayerSpec& layer, v1::SnapshotTensorRole role) {
  switch (role) {
    case v1::SNAPSHOT_TENSOR_ROLE_AVERAGE_A:
      return Packed(layer.d_in());
    case v1::SNAPSHOT_TENSOR_ROLE_AVERAGE_G:
      return Packed(layer.d_out());
    case v1::SNAPSHOT_TENSOR_ROLE_FACTORIZATION_A:
      return layer.d_in() * layer.d_in();
    case v1::SNAPSHOT_TENSOR_ROLE_FACTORIZATION_G:
      return layer.d_out() * layer.d_out();
    case v1::SNAPSHOT_TENSOR_ROLE_EIGENVALUES_A:
      return layer.d_in();
    case v1::SNAPSHOT_TENSOR_ROLE_EIGENVALUES_G:
      return layer.d_out();
    default:
      return 0;
  }
}

absl::Status CheckNumbers(const v1::LayerSnapshot& meta) {
  if (meta.job().empty()) return Bad("job: is empty");
  if (meta.layer().name().empty()) return Bad("layer.name: is empty");
  for (const int64_t side : {meta.layer().d_in(), meta.layer().d_out()}) {
    if (side >= 1 && side <= kMaxSide) continue;
    return Bad(absl::StrCat("layer '", meta.layer().name(), "': [",
                            meta.layer().d_out(), ", ", meta.layer().d_in(),
                            "] has a side outside 1 to ", kMaxSide));
  }
  if (meta.closed_through() < -1) {
    return Bad(absl::StrCat("closed_through: ", meta.closed_through(),
                            ", at least -1"));
  }
  if (meta.world_version() < 0) {
    return Bad(
        absl::StrCat("world_version: ", meta.world_version(), ", at least 0"));
  }
  return absl::OkStatus();
}

absl::Status CheckTensors(const v1::LayerSnapshot& meta,
                          std::set<v1::SnapshotTensorRole>* roles) {
  for (int i = 0; i < meta.tensors_size(); ++i) {
    const v1::SnapshotTensor& tensor = meta.tensors(i);
    const int64_t expected = ElementsOf(meta.layer(), tensor.role());
    const std::string name =
        absl::StrCat("tensors[", i, "] (", RoleName(tensor.role()), ")");
    if (expected == 0) return Bad(absl::StrCat(name, ": unknown role"));
    if (!roles->insert(tensor.role()).second) {
      return Bad(absl::StrCat(name, ": is there twice"));
    }
    if (tensor.elements() != expected) {
      return Bad(absl::StrCat(name, ": ", tensor.elements(),
                              " elements, a layer [", meta.layer().d_out(),
                              ", ", meta.layer().d_in(), "] has ", expected));
    }
  }
  return absl::OkStatus();
}

// Every role that belongs to the others is there, and no further one.
absl::Status CheckSet(const v1::LayerSnapshot& meta,
                      std::set<v1::SnapshotTensorRole> roles) {
  const bool averages = roles.count(v1::SNAPSHOT_TENSOR_ROLE_AVERAGE_A) > 0;
  for (const v1::SnapshotTensor& tensor : ExpectedTensors(meta, averages)) {
    if (roles.erase(tensor.role()) > 0) continue;
    return Bad(
        absl::StrCat("tensors: ", RoleName(tensor.role()), " is missing"));
  }
  if (roles.empty()) return absl::OkStatus();
  return Bad(absl::StrCat("tensors: ", RoleName(*roles.begin()),
                          " does not belong here"));
}

// Compares one field after the other and keeps the first difference.
class Comparison {
 public:
  explicit Comparison(std::string subject) : subject_(std::move(subject)) {}

  template <typename T>
  void Same(const char* field, const T& stored, const T& wanted) {
    if (!difference_.ok() || stored == wanted) return;
    difference_ = absl::FailedPreconditionError(
        absl::StrCat(subject_, ": ", field, " is ", stored,
                     " in the checkpoint, ", wanted, " in the job"));
  }
  const absl::Status& result() const { return difference_; }

 private:
  const std::string subject_;
  absl::Status difference_;
};

absl::Status CompareLayers(const v1::LayerSpec& stored,
                           const v1::LayerSpec& wanted) {
  Comparison layer(absl::StrCat("layer '", wanted.name(), "'"));
  layer.Same("name", stored.name(), wanted.name());
  layer.Same("kind", v1::LayerKind_Name(stored.kind()),
             v1::LayerKind_Name(wanted.kind()));
  layer.Same("d_out", stored.d_out(), wanted.d_out());
  layer.Same("d_in", stored.d_in(), wanted.d_in());
  layer.Same("has_bias", stored.has_bias(), wanted.has_bias());
  layer.Same("scale_a", stored.scale_a(), wanted.scale_a());
  layer.Same("scale_g", stored.scale_g(), wanted.scale_g());
  return layer.result();
}

absl::Status CompareOptions(const v1::JobOptions& stored,
                            const v1::JobOptions& wanted) {
  Comparison options("options");
  options.Same("method", v1::ComputeMethod_Name(stored.method()),
               v1::ComputeMethod_Name(wanted.method()));
  options.Same("damping_form", v1::DampingForm_Name(stored.damping_form()),
               v1::DampingForm_Name(wanted.damping_form()));
  options.Same("factor_init", v1::FactorInit_Name(stored.factor_init()),
               v1::FactorInit_Name(wanted.factor_init()));
  options.Same("factor_update_steps", stored.factor_update_steps(),
               wanted.factor_update_steps());
  options.Same("inv_update_steps", stored.inv_update_steps(),
               wanted.inv_update_steps());
  options.Same("refresh_schedule",
               v1::RefreshSchedule_Name(stored.refresh_schedule()),
               v1::RefreshSchedule_Name(wanted.refresh_schedule()));
  return options.result();
}

absl::Status CheckFile(const v1::CheckpointManifest& manifest, int layer) {
  const v1::CheckpointFile& file = manifest.files(layer);
  const std::string name = absl::StrCat("files[", layer, "]");
  if (file.layer() != layer) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, ".layer: ", file.layer(), ", expected ", layer,
                     ": a layer is missing or listed twice"));
  }
  if (!IsPlainFileName(file.path())) {
    return Bad(absl::StrCat(name, ".path: leaves the checkpoint's folder"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string RoleName(v1::SnapshotTensorRole role) {
  const std::string name = v1::SnapshotTensorRole_Name(role);
  if (name.empty()) return absl::StrCat("role ", static_cast<int>(role));
  return std::string(absl::StripPrefix(name, "SNAPSHOT_TENSOR_ROLE_"));
}

std::vector<v1::SnapshotTensor> ExpectedTensors(const v1::LayerSnapshot& meta,
                                                bool averages) {
  std::vector<v1::SnapshotTensorRole> roles;
  if (averages) {
    roles = {v1::SNAPSHOT_TENSOR_ROLE_AVERAGE_A,
             v1::SNAPSHOT_TENSOR_ROLE_AVERAGE_G};
  }
  if (meta.has_published()) {
    roles.push_back(v1::SNAPSHOT_TENSOR_ROLE_FACTORIZATION_A);
    roles.push_back(v1::SNAPSHOT_TENSOR_ROLE_FACTORIZATION_G);
    if (meta.published().method() == v1::COMPUTE_METHOD_EIGEN) {
      roles.push_back(v1::SNAPSHOT_TENSOR_ROLE_EIGENVALUES_A);
      roles.push_back(v1::SNAPSHOT_TENSOR_ROLE_EIGENVALUES_G);
    }
  }
  std::vector<v1::SnapshotTensor> tensors;
  for (const v1::SnapshotTensorRole role : roles) {
    v1::SnapshotTensor& tensor = tensors.emplace_back();
    tensor.set_role(role);
    tensor.set_elements(ElementsOf(meta.layer(), role));
  }
  return tensors;
}

v1::JobOptions StateOptions(const v1::JobOptions& options) {
  v1::JobOptions state;
  state.set_method(options.method());
  state.set_damping_form(options.damping_form());
  state.set_factor_init(options.factor_init());
  state.set_factor_update_steps(options.factor_update_steps());
  state.set_inv_update_steps(options.inv_update_steps());
  state.set_refresh_schedule(options.refresh_schedule());
  return state;
}

absl::Status CheckSnapshot(const v1::LayerSnapshot& meta) {
  KRONSERVE_RETURN_IF_ERROR(CheckNumbers(meta));
  std::set<v1::SnapshotTensorRole> roles;
  KRONSERVE_RETURN_IF_ERROR(CheckTensors(meta, &roles));
  return CheckSet(meta, std::move(roles));
}

absl::Status CheckSnapshotFits(const v1::LayerSnapshot& meta,
                               const v1::JobConfig& config, int layer) {
  Comparison job("checkpoint");
  job.Same("job", meta.job(), config.job());
  KRONSERVE_RETURN_IF_ERROR(job.result());
  KRONSERVE_RETURN_IF_ERROR(CompareLayers(meta.layer(), config.layers(layer)));
  return CompareOptions(meta.options(), config.options());
}

absl::Status CheckManifest(const v1::CheckpointManifest& manifest) {
  KRONSERVE_RETURN_IF_ERROR(CheckCheckpointId(manifest.id()));
  if (manifest.job().empty()) return Bad("job: is empty");
  if (manifest.step() < 0) {
    return Bad(absl::StrCat("step: ", manifest.step(), ", at least 0"));
  }
  if (manifest.layers().empty()) return Bad("layers: there is none");
  if (manifest.files_size() != manifest.layers_size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("files: ", manifest.files_size(), " for ",
                     manifest.layers_size(), " layers"));
  }
  for (int layer = 0; layer < manifest.layers_size(); ++layer) {
    KRONSERVE_RETURN_IF_ERROR(CheckFile(manifest, layer));
  }
  return absl::OkStatus();
}

absl::Status CheckManifestFits(const v1::CheckpointManifest& manifest,
                               const v1::JobConfig& config) {
  Comparison table("checkpoint");
  table.Same("job", manifest.job(), config.job());
  table.Same("number of layers", manifest.layers_size(), config.layers_size());
  KRONSERVE_RETURN_IF_ERROR(table.result());
  for (int layer = 0; layer < config.layers_size(); ++layer) {
    KRONSERVE_RETURN_IF_ERROR(
        CompareLayers(manifest.layers(layer), config.layers(layer)));
  }
  return CompareOptions(manifest.options(), config.options());
}

}  // namespace kronserve::checkpoint
