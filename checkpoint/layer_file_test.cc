// What a layer's file gives back, and every way in which one can be wrong.

#include "checkpoint/layer_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "checkpoint/testing/sample_layer.h"
#include "checkpoint/testing/temporary_folder.h"
#include "common/checksum.h"
#include "common/testing/status_matchers.h"

namespace kronserve::checkpoint {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
void PutAt(std::string* bytes, size_t at, T value) {
  std::memcpy(bytes->data() + at, &value, sizeof(value));
}

class LayerFileTest : public ::testing::Test {
 protected:
  LayerFileTest() {
    writer_.calls = &calls_;
    writer_.server = "s1";
    writer_.incarnation = 1;
  }

  // The bytes of the file of `layer`.
  std::string BytesOf(const StoredLayer& layer) {
    EXPECT_THAT(WriteLayerFile(&writer_, path_, layer.meta, layer.tensors),
                IsOk());
    return ReadBytes(path_);
  }

  // The file with another header and right checksums: of someone who knows
  // the format.
  static std::string Forged(const std::string& header,
                            const std::string& tensors) {
    std::string bytes(32, '\0');
    std::memcpy(bytes.data(), "KRONLAYR", 8);
    PutAt<uint32_t>(&bytes, 8, 1);
    PutAt<uint32_t>(&bytes, 12, 1);
    PutAt<uint64_t>(&bytes, 16, header.size());
    PutAt<uint64_t>(&bytes, 24, Checksum(header.data(), header.size()));
    return Closed(bytes + header + tensors);
  }

  // `bytes` and their checksum.
  static std::string Closed(std::string bytes) {
    const uint64_t checksum = Checksum(bytes.data(), bytes.size());
    bytes.resize(bytes.size() + 8);
    PutAt(&bytes, bytes.size() - 8, checksum);
    return bytes;
  }

  absl::Status ReadOf(const std::string& bytes) {
    WriteBytes(path_, bytes);
    return ReadLayerFile(path_, AcceptAnyHeader).status();
  }

  // A forged file whose header is the sample's, changed.
  absl::Status ReadChanged(
      const std::function<void(v1::LayerSnapshot*)>& change) {
    v1::LayerSnapshot meta = sample_.meta;
    change(&meta);
    return ReadOf(
        Forged(meta.SerializeAsString(), std::string(size_t{22} * 4, '\0')));
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_ / "layer.kron";
  WriteCalls calls_;
  Writer writer_;
  const StoredLayer sample_ = SampleLayer(0, 7, 1041);
};

TEST_F(LayerFileTest, GivesBackEveryBit) {
  StoredLayer layer = sample_;
  layer.tensors[0] = std::make_shared<const std::vector<float>>(
      std::vector<float>{1.5f, -0.0f, 1e-45f, 3e38f, -1, 0.1f});
  KRONSERVE_ASSERT_OK_AND_ASSIGN(
      const FileSum sum,
      WriteLayerFile(&writer_, path_, layer.meta, layer.tensors));
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const LayerFile file,
                                 ReadLayerFile(path_, AcceptAnyHeader));
  ASSERT_EQ(file.layer.tensors.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    const auto& read = *file.layer.tensors[i];
    const auto& written = *layer.tensors[i];
    ASSERT_EQ(read.size(), written.size());
    EXPECT_EQ(std::memcmp(read.data(), written.data(), 4 * read.size()), 0);
  }
  // The header comes back as it was, checksums aside.
  v1::LayerSnapshot meta = file.layer.meta;
  for (auto& tensor : *meta.mutable_tensors()) tensor.clear_checksum();
  EXPECT_EQ(meta.SerializeAsString(), layer.meta.SerializeAsString());
  // Size and checksum are those of the whole file.
  const std::string bytes = ReadBytes(path_);
  EXPECT_EQ(sum.bytes, static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(sum.checksum, Checksum(bytes.data(), bytes.size()));
  EXPECT_EQ(file.sum.bytes, sum.bytes);
  EXPECT_EQ(file.sum.checksum, sum.checksum);
}

TEST_F(LayerFileTest, ALayerThatNeverSawAFactorHasNoTensors) {
  StoredLayer layer = sample_;
  layer.meta.clear_tensors();
  layer.meta.clear_published();
  layer.meta.set_closed_through(-1);
  layer.tensors.clear();
  EXPECT_THAT(ReadOf(BytesOf(layer)), IsOk());
}

TEST_F(LayerFileTest, AFileTruncatedAnywhereIsRefused) {
  const std::string bytes = BytesOf(sample_);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(ReadOf(bytes.substr(0, size)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path_)))
        << size << " of " << bytes.size();
  }
  EXPECT_THAT(ReadOf(""),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("is empty")));
  EXPECT_THAT(ReadOf(bytes.substr(0, 39)),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("size: truncated to 39 bytes, the smallest "
                                 "file has 40")));
  EXPECT_THAT(ReadOf(bytes.substr(0, bytes.size() - 1)),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("size: 87 bytes for tensors, the header "
                                 "lists 88")));
}

TEST_F(LayerFileTest, AFlippedBitAnywhereIsRefused) {
  const std::string bytes = BytesOf(sample_);
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; bit += 7) {
      std::string flipped = bytes;
      flipped[at] ^= 1 << bit;
      const absl::Status status = ReadOf(flipped);
      EXPECT_TRUE(absl::IsDataLoss(status) ||
                  absl::IsFailedPrecondition(status))
          << "byte " << at << ": " << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
    }
  }
}

TEST_F(LayerFileTest, TheDamagedPartIsNamed) {
  const std::string bytes = BytesOf(sample_);
  const size_t tensors = bytes.size() - 8 - 88;
  const auto flipped = [&bytes](size_t at) {
    std::string changed = bytes;
    changed[at] ^= 1;
    return changed;
  };
  const auto damaged = [](const char* what) {
    return StatusIs(absl::StatusCode::kDataLoss, HasSubstr(what));
  };
  EXPECT_THAT(ReadOf(flipped(0)), damaged("magic"));
  EXPECT_THAT(ReadOf(flipped(16)), damaged("header checksum: stored "));
  EXPECT_THAT(ReadOf(flipped(24)), damaged("header checksum: stored "));
  EXPECT_THAT(ReadOf(flipped(40)), damaged("header checksum: stored "));
  EXPECT_THAT(ReadOf(flipped(tensors)),
              damaged("tensor 0 (AVERAGE_A): checksum: stored "));
  EXPECT_THAT(ReadOf(flipped(bytes.size() - 9)),
              damaged("tensor 3 (FACTORIZATION_G): checksum: stored "));
  EXPECT_THAT(ReadOf(flipped(bytes.size() - 1)),
              damaged("last checksum: stored "));
}

TEST_F(LayerFileTest, AnotherVersionOrElementTypeIsNamed) {
  std::string newer = BytesOf(sample_);
  PutAt<uint32_t>(&newer, 8, 2);
  newer = Closed(newer.substr(0, newer.size() - 8));
  EXPECT_THAT(ReadOf(newer),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(path_), HasSubstr("format version: 2, "
                                                         "this program reads "
                                                         "1"))));
  // bfloat16, should it ever be written.
  std::string other = BytesOf(sample_);
  PutAt<uint32_t>(&other, 12, 2);
  other = Closed(other.substr(0, other.size() - 8));
  EXPECT_THAT(ReadOf(other),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("element type: 2, this program reads 1 "
                                 "(float32)")));
}

TEST_F(LayerFileTest, HugeLengthsAllocateNothing) {
  std::string bytes = BytesOf(sample_);
  for (const uint64_t length :
       {std::numeric_limits<uint64_t>::max(), uint64_t{1} << 63,
        uint64_t{1} << 40, uint64_t{bytes.size() - 39}}) {
    PutAt(&bytes, 16, length);
    EXPECT_THAT(ReadOf(bytes), StatusIs(absl::StatusCode::kDataLoss,
                                        HasSubstr("header length: ")));
  }
  // A layer of 2^29 x 2^29, with a header that is right in itself.
  EXPECT_THAT(ReadChanged([](v1::LayerSnapshot* meta) {
                const int64_t d = int64_t{1} << 29;
                meta->mutable_layer()->set_d_in(d);
                meta->mutable_layer()->set_d_out(d);
                meta->mutable_tensors(0)->set_elements(d * (d + 1) / 2);
                meta->mutable_tensors(1)->set_elements(d * (d + 1) / 2);
                meta->mutable_tensors(2)->set_elements(d * d);
                meta->mutable_tensors(3)->set_elements(d * d);
              }),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("size: 88 bytes for tensors, the header "
                                 "lists more than the whole file")));
  EXPECT_THAT(ReadChanged([](v1::LayerSnapshot* meta) {
                meta->mutable_layer()->set_d_in(int64_t{1} << 62);
              }),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("has a side outside 1 to ")));
  EXPECT_THAT(ReadChanged([](v1::LayerSnapshot* meta) {
                meta->mutable_tensors(0)->set_elements(int64_t{1} << 62);
              }),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("tensors[0] (AVERAGE_A): 4611686018427387904 "
                                 "elements, a layer [2, 3] has 6")));
}

TEST_F(LayerFileTest, AHeaderThatContradictsItselfIsNamed) {
  EXPECT_THAT(ReadChanged([](v1::LayerSnapshot* meta) {
                meta->mutable_tensors(0)->set_role(
                    static_cast<v1::SnapshotTensorRole>(9));
              }),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("tensors[0] (role 9): unknown role")));
  EXPECT_THAT(ReadOf(Forged("\xff\xff", "")),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("header: is not a LayerSnapshot")));
}

TEST_F(LayerFileTest, ValuesThatAreNotFiniteAreRefused) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          -std::numeric_limits<float>::infinity()}) {
    StoredLayer layer = sample_;
    layer.tensors[1] = std::make_shared<const std::vector<float>>(
        std::vector<float>{7, 8, bad});
    EXPECT_THAT(ReadOf(BytesOf(layer)),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("tensor 1 (AVERAGE_G): element 2 is not "
                                   "finite")));
  }
}

TEST_F(LayerFileTest, WhatFollowsTheFileIsRefused) {
  EXPECT_THAT(ReadOf(BytesOf(sample_) + "x"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("size: 89 bytes for tensors, the header "
                                 "lists 88")));
}

TEST_F(LayerFileTest, WhatIsNotAFileIsNoReasonToWait) {
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(ReadLayerFile(pipe, AcceptAnyHeader),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("is not a regular file")));
  EXPECT_THAT(ReadLayerFile(folder_.path(), AcceptAnyHeader),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("regular")));
  EXPECT_THAT(ReadLayerFile(folder_ / "none", AcceptAnyHeader),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

TEST_F(LayerFileTest, AnUnwantedHeaderIsRefusedBeforeItsTensorsAreRead) {
  std::string bytes = BytesOf(sample_);
  bytes[bytes.size() - 20] ^= 1;  // Would be DATA_LOSS.
  WriteBytes(path_, bytes);
  EXPECT_THAT(ReadLayerFile(path_,
                            [](const v1::LayerSnapshot&) {
                              return absl::FailedPreconditionError("not mine");
                            }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(path_), HasSubstr("not mine"))));
}

TEST_F(LayerFileTest, TheHeaderAloneIsBlindToDamagedTensors) {
  std::string bytes = BytesOf(sample_);
  bytes[bytes.size() - 20] ^= 1;
  WriteBytes(path_, bytes);
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const v1::LayerSnapshot meta,
                                 ReadLayerHeader(path_));
  EXPECT_EQ(meta.closed_through(), 1041);
  WriteBytes(path_, bytes.substr(0, bytes.size() - 1));
  EXPECT_THAT(ReadLayerHeader(path_),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("size")));
}

TEST_F(LayerFileTest, TensorsThatDoNotFitTheirListAreNotWritten) {
  StoredLayer layer = sample_;
  layer.tensors.pop_back();
  EXPECT_THAT(WriteLayerFile(&writer_, path_, layer.meta, layer.tensors),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("3 tensors, 4 are listed")));
  layer.tensors.push_back(
      std::make_shared<const std::vector<float>>(std::vector<float>{1}));
  EXPECT_THAT(WriteLayerFile(&writer_, path_, layer.meta, layer.tensors),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("tensor 3 (FACTORIZATION_G) has 1 elements, 4 "
                                 "are listed")));
  layer.tensors.back() = nullptr;
  EXPECT_THAT(WriteLayerFile(&writer_, path_, layer.meta, layer.tensors),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has 0 elements")));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace kronserve::checkpoint
