#include "checkpoint/layer_file.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/snapshot_check.h"
#include "common/checksum.h"
#include "common/status_macros.h"

namespace kronserve::checkpoint {
namespace {

constexpr int64_t kElementBytes = sizeof(float);

// Position of the first value that is not finite; -1 if there is none.
int64_t FirstNonFinite(const std::vector<float>& values) {
  // As integers: the largest of them is found many at a time.
  constexpr uint32_t kInfinity = 0x7f800000;
  uint32_t largest = 0;
  for (const float value : values) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    largest = std::max(largest, bits & 0x7fffffff);
  }
  if (largest < kInfinity) return -1;
  const auto bad = std::find_if(values.begin(), values.end(),
                                [](float v) { return !std::isfinite(v); });
  return bad - values.begin();
}

std::string TensorName(const v1::LayerSnapshot& meta, int i) {
  return absl::StrCat("tensor ", i, " (", RoleName(meta.tensors(i).role()),
                      ")");
}

// Tensors have to be what `meta` says; the checksums are filled in.
absl::Status FillChecksums(const std::vector<Tensor>& tensors,
                           v1::LayerSnapshot* meta) {
  KRONSERVE_RETURN_IF_ERROR(CheckSnapshot(*meta));
  if (static_cast<int>(tensors.size()) != meta->tensors_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer '", meta->layer().name(), "': ", tensors.size(),
                     " tensors, ", meta->tensors_size(), " are listed"));
  }
  for (int i = 0; i < meta->tensors_size(); ++i) {
    const int64_t elements = meta->tensors(i).elements();
    if (tensors[i] == nullptr ||
        static_cast<int64_t>(tensors[i]->size()) != elements) {
      return absl::InvalidArgumentError(absl::StrCat(
          "layer '", meta->layer().name(), "': ", TensorName(*meta, i), " has ",
          tensors[i] == nullptr ? 0 : tensors[i]->size(), " elements, ",
          elements, " are listed"));
    }
    meta->mutable_tensors(i)->set_checksum(
        Checksum(tensors[i]->data(), elements * kElementBytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::LayerSnapshot> ParseHeader(const FrameReader& reader) {
  v1::LayerSnapshot meta;
  if (!meta.ParseFromString(reader.header())) {
    return reader.Fault("header: is not a LayerSnapshot");
  }
  const absl::Status sound = CheckSnapshot(meta);
  if (!sound.ok()) {
    return reader.Fault(absl::StrCat("header: ", sound.message()));
  }
  int64_t bytes = 0;  // Of at most six tensors, none larger than the file.
  for (const v1::SnapshotTensor& tensor : meta.tensors()) {
    if (tensor.elements() > reader.file_bytes() / kElementBytes) {
      bytes = -1;
      break;
    }
    bytes += tensor.elements() * kElementBytes;
  }
  if (bytes == reader.tensor_bytes()) return meta;
  return reader.Fault(absl::StrCat(
      "size: ", reader.tensor_bytes(), " bytes for tensors, the header lists ",
      bytes < 0 ? "more than the whole file" : absl::StrCat(bytes)));
}

absl::StatusOr<Tensor> ReadTensor(FrameReader* reader,
                                  const v1::LayerSnapshot& meta, int i) {
  const v1::SnapshotTensor& listed = meta.tensors(i);
  const std::string name = TensorName(meta, i);
  auto values = std::make_shared<std::vector<float>>(listed.elements());
  const int64_t bytes = listed.elements() * kElementBytes;
  KRONSERVE_RETURN_IF_ERROR(reader->Read(values->data(), bytes, name));
  const uint64_t checksum = Checksum(values->data(), bytes);
  if (checksum != listed.checksum()) {
    return reader->Fault(
        absl::StrFormat("%s: checksum: stored %016x, computed %016x", name,
                        listed.checksum(), checksum));
  }
  const int64_t bad = FirstNonFinite(*values);
  if (bad >= 0) {
    return reader->Fault(
        absl::StrCat(name, ": element ", bad, " is not finite"));
  }
  return Tensor(std::move(values));
}

}  // namespace

absl::StatusOr<FileSum> WriteLayerFile(Writer* writer, const std::string& path,
                                       const v1::LayerSnapshot& meta,
                                       const std::vector<Tensor>& tensors) {
  v1::LayerSnapshot filled = meta;
  KRONSERVE_RETURN_IF_ERROR(FillChecksums(tensors, &filled));
  return WriteFrame(writer, path, FrameKind::kLayer, filled.SerializeAsString(),
                    tensors);
}

absl::StatusOr<LayerFile> ReadLayerFile(const std::string& path,
                                        const AcceptHeader& accept) {
  KRONSERVE_ASSIGN_OR_RETURN(const auto reader,
                             FrameReader::Open(path, FrameKind::kLayer));
  LayerFile file;
  KRONSERVE_ASSIGN_OR_RETURN(file.layer.meta, ParseHeader(*reader));
  const absl::Status accepted = accept(file.layer.meta);
  if (!accepted.ok()) {
    return absl::Status(
        accepted.code(),
        absl::StrCat("checkpoint file '", path, "': ", accepted.message()));
  }
  for (int i = 0; i < file.layer.meta.tensors_size(); ++i) {
    KRONSERVE_ASSIGN_OR_RETURN(Tensor tensor,
                               ReadTensor(reader.get(), file.layer.meta, i));
    file.layer.tensors.push_back(std::move(tensor));
  }
  KRONSERVE_ASSIGN_OR_RETURN(file.sum, reader->Finish());
  return file;
}

absl::StatusOr<v1::LayerSnapshot> ReadLayerHeader(const std::string& path) {
  KRONSERVE_ASSIGN_OR_RETURN(const auto reader,
                             FrameReader::Open(path, FrameKind::kLayer));
  return ParseHeader(*reader);
}

}  // namespace kronserve::checkpoint
