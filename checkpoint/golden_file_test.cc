// The committed files of format version 1 (tests/data/checkpoint_v1) are read
// for ever.
//
// Their bytes are put together here by hand from docs/checkpoint_format.md,
// without frame.cc. With KRONSERVE_WRITE_GOLDEN=FOLDER in the environment the
// test writes them there first.

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "checkpoint/job_files.h"
#include "checkpoint/layer_file.h"
#include "checkpoint/manifest_file.h"
#include "checkpoint/testing/temporary_folder.h"
#include "common/checksum.h"
#include "common/testing/status_matchers.h"

namespace kronserve::checkpoint {
namespace {

using ::kronserve::testing::IsOk;
using ::testing::ElementsAre;

// A = diag(1, 4, 9) and G = [[2, 1], [1, 2]], of method eigen: eigenvalues 1,
// 4, 9 and 1, 3; eigenvectors the unit vectors and (1, -1), (1, 1) over the
// root of 2, rounded to 0.7071068.
const std::vector<std::vector<float>>& Tensors() {
  static const std::vector<std::vector<float>> tensors = {
      {1, 0, 0, 4, 0, 9},
      {2, 1, 2},
      {1, 0, 0, 0, 1, 0, 0, 0, 1},
      {0.7071068f, 0.7071068f, -0.7071068f, 0.7071068f},
      {1, 4, 9},
      {1, 3}};
  return tensors;
}

constexpr char kLayer[] = R"(
  layer { name: "fc1" kind: LAYER_KIND_LINEAR d_out: 2 d_in: 3 has_bias: true
          scale_a: 1 scale_g: 1 }
  options { factor_update_steps: 1 inv_update_steps: 10
            method: COMPUTE_METHOD_EIGEN damping_form: DAMPING_FORM_EXACT
            factor_init: FACTOR_INIT_WARM factor_source: FACTOR_SOURCE_ALL
            refresh_schedule: REFRESH_SCHEDULE_STAGGERED max_staleness: 2 }
  job: "mnist" run_id: "run-1" layer_index: 0 world_version: 2
  epoch: 7 closed_through: 1041 updates: 1042 first_step: 0 factor_step: 1041
  damping: 0.003
  published { method: COMPUTE_METHOD_EIGEN damping_form: DAMPING_FORM_EXACT
              version: 1040 factor_step: 1039 published_for: 1040
              damping: 0.03 pi: 1 rung: 1 }
  failed_for: -1
  closed { step: 1041 rank: 1 kind: FACTOR_KIND_INPUT }
  tensors { role: SNAPSHOT_TENSOR_ROLE_AVERAGE_A elements: 6 }
  tensors { role: SNAPSHOT_TENSOR_ROLE_AVERAGE_G elements: 3 }
  tensors { role: SNAPSHOT_TENSOR_ROLE_FACTORIZATION_A elements: 9 }
  tensors { role: SNAPSHOT_TENSOR_ROLE_FACTORIZATION_G elements: 4 }
  tensors { role: SNAPSHOT_TENSOR_ROLE_EIGENVALUES_A elements: 3 }
  tensors { role: SNAPSHOT_TENSOR_ROLE_EIGENVALUES_G elements: 2 })";

constexpr char kManifest[] = R"(
  job: "mnist" id: "c1" run_id: "run-1" world_version: 2 step: 1041
  layers { name: "fc1" kind: LAYER_KIND_LINEAR d_out: 2 d_in: 3 has_bias: true
           scale_a: 1 scale_g: 1 }
  options { factor_update_steps: 1 inv_update_steps: 10
            method: COMPUTE_METHOD_EIGEN damping_form: DAMPING_FORM_EXACT
            factor_init: FACTOR_INIT_WARM factor_source: FACTOR_SOURCE_ALL
            refresh_schedule: REFRESH_SCHEDULE_STAGGERED max_staleness: 2 }
  files { layer: 0 path: "layer.kron" size_bytes: 387 })";

template <typename Message>
Message Parse(const char* text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

// Little-endian, byte by byte.
std::string Number(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) {
    text += static_cast<char>(value >> (8 * i) & 0xff);
  }
  return text;
}

uint64_t Sum(const std::string& bytes) {
  return Checksum(bytes.data(), bytes.size());
}

std::string Frame(const std::string& magic, uint32_t element_type,
                  const std::string& header, const std::string& tensors) {
  const std::string file = magic + Number(1, 4) + Number(element_type, 4) +
                           Number(header.size(), 8) + Number(Sum(header), 8) +
                           header + tensors;
  return file + Number(Sum(file), 8);
}

std::string BytesOf(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    bytes += Number(bits, 4);
  }
  return bytes;
}

v1::LayerSnapshot Meta() {
  auto meta = Parse<v1::LayerSnapshot>(kLayer);
  for (int i = 0; i < meta.tensors_size(); ++i) {
    meta.mutable_tensors(i)->set_checksum(Sum(BytesOf(Tensors()[i])));
  }
  return meta;
}

std::string LayerBytes() {
  std::string tensors;
  for (const std::vector<float>& tensor : Tensors()) tensors += BytesOf(tensor);
  return Frame("KRONLAYR", 1, Meta().SerializeAsString(), tensors);
}

v1::CheckpointManifest Manifest() {
  auto manifest = Parse<v1::CheckpointManifest>(kManifest);
  manifest.mutable_files(0)->set_checksum(Sum(LayerBytes()));
  return manifest;
}

std::string ManifestBytes() {
  return Frame("KRONMANI", 0, Manifest().SerializeAsString(), "");
}

class GoldenFileTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const char* folder = std::getenv("KRONSERVE_WRITE_GOLDEN");
    if (folder == nullptr) return;
    WriteBytes(std::string(folder) + "/layer.kron", LayerBytes());
    WriteBytes(std::string(folder) + "/MANIFEST", ManifestBytes());
  }
  GoldenFileTest() {
    writer_.calls = &calls_;
    writer_.server = "s1";
  }

  const std::string golden_ = KRONSERVE_GOLDEN_CHECKPOINT;
  TemporaryFolder folder_;
  WriteCalls calls_;
  Writer writer_;
};

TEST_F(GoldenFileTest, TheCommittedLayerIsReadWithTheseValues) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(
      const LayerFile file,
      ReadLayerFile(golden_ + "/layer.kron", AcceptAnyHeader));
  const v1::LayerSnapshot& meta = file.layer.meta;
  EXPECT_EQ(meta.layer().name(), "fc1");
  EXPECT_EQ(meta.job(), "mnist");
  EXPECT_EQ(meta.epoch(), 7u);
  EXPECT_EQ(meta.closed_through(), 1041);
  EXPECT_EQ(meta.updates(), 1042);
  EXPECT_EQ(meta.damping(), 0.003);
  EXPECT_EQ(meta.published().version(), 1040);
  EXPECT_EQ(meta.published().damping(), 0.03);
  EXPECT_EQ(meta.failed_for(), -1);
  EXPECT_EQ(meta.closed(0).rank(), 1);
  ASSERT_EQ(file.layer.tensors.size(), 6u);
  EXPECT_THAT(*file.layer.tensors[0], ElementsAre(1, 0, 0, 4, 0, 9));
  EXPECT_THAT(*file.layer.tensors[1], ElementsAre(2, 1, 2));
  EXPECT_THAT(*file.layer.tensors[2], ElementsAre(1, 0, 0, 0, 1, 0, 0, 0, 1));
  EXPECT_THAT(*file.layer.tensors[3],
              ElementsAre(0.7071068f, 0.7071068f, -0.7071068f, 0.7071068f));
  EXPECT_THAT(*file.layer.tensors[4], ElementsAre(1, 4, 9));
  EXPECT_THAT(*file.layer.tensors[5], ElementsAre(1, 3));
}

TEST_F(GoldenFileTest, TheCommittedManifestIsReadWithTheseValues) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const v1::CheckpointManifest manifest,
                                 ReadManifestFile(golden_));
  EXPECT_EQ(manifest.job(), "mnist");
  EXPECT_EQ(manifest.id(), "c1");
  EXPECT_EQ(manifest.run_id(), "run-1");
  EXPECT_EQ(manifest.world_version(), 2);
  EXPECT_EQ(manifest.step(), 1041);
  EXPECT_EQ(manifest.layers(0).d_in(), 3);
  EXPECT_EQ(manifest.files(0).path(), "layer.kron");
  // 32 + 239 of the header + 4 * 27 elements + 8.
  EXPECT_EQ(manifest.files(0).size_bytes(), 387);
  EXPECT_EQ(manifest.files(0).checksum(),
            Sum(ReadBytes(golden_ + "/layer.kron")));
}

TEST_F(GoldenFileTest, TheCommittedFilesBelongTogether) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const v1::CheckpointManifest manifest,
                                 ReadManifestFile(golden_));
  EXPECT_THAT(ReadJobFile(golden_, manifest, 0), IsOk());
}

TEST_F(GoldenFileTest, TheCommittedBytesAreThoseOfTheDescription) {
  EXPECT_EQ(ReadBytes(golden_ + "/layer.kron"), LayerBytes());
  EXPECT_EQ(ReadBytes(golden_ + "/MANIFEST"), ManifestBytes());
}

TEST_F(GoldenFileTest, TheWriterWritesTheSameBytes) {
  std::vector<Tensor> tensors;
  for (const std::vector<float>& tensor : Tensors()) {
    tensors.push_back(std::make_shared<const std::vector<float>>(tensor));
  }
  ASSERT_THAT(WriteLayerFile(&writer_, folder_ / "layer.kron", Meta(), tensors),
              IsOk());
  EXPECT_EQ(ReadBytes(folder_ / "layer.kron"), LayerBytes());
  ASSERT_THAT(WriteManifest(&writer_, folder_.path(), Manifest()), IsOk());
  EXPECT_EQ(ReadBytes(folder_ / "MANIFEST"), ManifestBytes());
}

}  // namespace
}  // namespace kronserve::checkpoint
