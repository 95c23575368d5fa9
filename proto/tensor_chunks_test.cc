#include "proto/tensor_chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <string>

#include "common/testing/status_matchers.h"

namespace kronserve {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

v1::TensorChunk Chunk(int item, uint64_t offset, const std::string& data) {
  v1::TensorChunk chunk;
  chunk.set_item(item);
  chunk.set_offset(offset);
  chunk.set_data(data);
  return chunk;
}

std::vector<v1::TensorChunk> Split(int item, const std::vector<float>& data) {
  ChunkSplitter splitter(item, data.data(), static_cast<int64_t>(data.size()));
  std::vector<v1::TensorChunk> chunks;
  v1::TensorChunk chunk;
  while (splitter.Next(&chunk)) chunks.push_back(chunk);
  return chunks;
}

TEST(ChunkSplitter, CutsAtOneMebibyte) {
  // 2.5 MiB of float32.
  const std::vector<float> data(5 * (kChunkBytes / 4) / 2);
  const auto chunks = Split(7, data);
  ASSERT_EQ(chunks.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(chunks[i].item(), 7);
    EXPECT_EQ(chunks[i].offset(), static_cast<uint64_t>(i * kChunkBytes));
  }
  EXPECT_EQ(chunks[0].data().size(), static_cast<size_t>(kChunkBytes));
  EXPECT_EQ(chunks[2].data().size(), static_cast<size_t>(kChunkBytes / 2));
}

TEST(ChunkSplitter, WholeChunksLeaveNoEmptyOne) {
  EXPECT_EQ(Split(0, std::vector<float>(kChunkBytes / 4)).size(), 1u);
  EXPECT_EQ(Split(0, {}).size(), 0u);
}

TEST(ChunkSplitter, BytesAreLittleEndianFloats) {
  const auto chunks = Split(0, {1.0f});  // 0x3f800000
  ASSERT_EQ(chunks.size(), 1u);
  EXPECT_EQ(chunks[0].data(), std::string("\x00\x00\x80\x3f", 4));
}

TEST(ChunkAssembler, PutsSeveralTensorsTogetherAgain) {
  std::vector<float> first(300000);
  std::iota(first.begin(), first.end(), 0.0f);
  const std::vector<float> third = {3, 4};
  ChunkAssembler assembler({{300000, true}, {0, true}, {2, true}});
  for (const auto& chunk : Split(0, first)) {
    ASSERT_THAT(assembler.Add(chunk), IsOk());
  }
  for (const auto& chunk : Split(2, third)) {
    ASSERT_THAT(assembler.Add(chunk), IsOk());
  }
  for (int item = 0; item < 3; ++item) {
    EXPECT_THAT(assembler.Complete(item), IsOk());
  }
  EXPECT_EQ(*assembler.Take(0), first);
  EXPECT_THAT(*assembler.Take(2), ElementsAre(3, 4));
}

TEST(ChunkAssembler, PiecesMayBeOfAnySizeEvenInsideAFloat) {
  ChunkAssembler assembler({{1, true}});
  ASSERT_THAT(assembler.Add(Chunk(0, 0, std::string("\x00", 1))), IsOk());
  ASSERT_THAT(assembler.Add(Chunk(0, 1, std::string("\x00\x80\x3f", 3))),
              IsOk());
  EXPECT_THAT(*assembler.Take(0), ElementsAre(1.0f));
}

TEST(ChunkAssembler, TakeGivesACompleteKeptTensorOnce) {
  ChunkAssembler assembler({{1, true}, {1, false}, {1, true}});
  ASSERT_THAT(assembler.Add(Chunk(0, 0, "abcd")), IsOk());
  ASSERT_THAT(assembler.Add(Chunk(1, 0, "abcd")), IsOk());
  ASSERT_THAT(assembler.Add(Chunk(2, 0, "abc")), IsOk());
  EXPECT_NE(assembler.Take(0), nullptr);
  EXPECT_EQ(assembler.Take(0), nullptr);
  EXPECT_THAT(assembler.Complete(1), IsOk());
  EXPECT_EQ(assembler.Take(1), nullptr);  // Counted, not kept.
  EXPECT_EQ(assembler.Take(2), nullptr);  // One byte is missing.
}

TEST(ChunkAssembler, OneByteTooFewIsNamedWithBothNumbers) {
  ChunkAssembler assembler({{2, true}});
  ASSERT_THAT(assembler.Add(Chunk(0, 0, "1234567")), IsOk());
  EXPECT_THAT(assembler.Complete(0),
              StatusIs(kInvalid, "got 7 bytes, expected 8"));
}

TEST(ChunkAssembler, OneByteTooManyIsNamedWithTheExpectedNumber) {
  ChunkAssembler assembler({{2, true}, {2, false}});
  EXPECT_THAT(assembler.Add(Chunk(0, 0, "123456789")),
              StatusIs(kInvalid, HasSubstr("expected 8 bytes")));
  ASSERT_THAT(assembler.Add(Chunk(1, 0, "12345678")), IsOk());
  EXPECT_THAT(assembler.Add(Chunk(1, 8, "9")),
              StatusIs(kInvalid, HasSubstr("item 1")));
}

TEST(ChunkAssembler, RefusesUnknownItems) {
  ChunkAssembler assembler({{1, true}});
  for (const int item : {-1, 1, std::numeric_limits<int>::max(),
                         std::numeric_limits<int>::min()}) {
    EXPECT_THAT(assembler.Add(Chunk(item, 0, "abcd")),
                StatusIs(kInvalid, HasSubstr(std::to_string(item))));
  }
}

TEST(ChunkAssembler, RefusesChunksWithoutItems) {
  ChunkAssembler assembler({});
  EXPECT_THAT(assembler.Add(Chunk(0, 0, "a")),
              StatusIs(kInvalid, HasSubstr("item 0")));
}

TEST(ChunkAssembler, RefusesAnItemBeforeTheLastOne) {
  ChunkAssembler assembler({{1, true}, {1, true}});
  ASSERT_THAT(assembler.Add(Chunk(1, 0, "abcd")), IsOk());
  EXPECT_THAT(assembler.Add(Chunk(0, 0, "abcd")),
              StatusIs(kInvalid, HasSubstr("chunk of item 0")));
}

TEST(ChunkAssembler, RefusesGapsAndOverlapsWithBothOffsets) {
  ChunkAssembler assembler({{4, true}});
  ASSERT_THAT(assembler.Add(Chunk(0, 0, "12345678")), IsOk());
  const auto names = [](const char* got) {
    return StatusIs(kInvalid,
                    AllOf(HasSubstr(got), HasSubstr("byte at offset 8")));
  };
  EXPECT_THAT(assembler.Add(Chunk(0, 9, "1")), names("at offset 9,"));
  EXPECT_THAT(assembler.Add(Chunk(0, 7, "1")), names("at offset 7,"));
  EXPECT_THAT(assembler.Add(Chunk(0, 0, "12345678")), names("at offset 0,"));
  EXPECT_THAT(
      assembler.Add(Chunk(0, std::numeric_limits<uint64_t>::max(), "1")),
      names("at offset 18446744073709551615,"));
}

TEST(ChunkAssembler, RefusesEmptyChunks) {
  ChunkAssembler assembler({{1, true}});
  EXPECT_THAT(assembler.Add(Chunk(0, 0, "")),
              StatusIs(kInvalid, HasSubstr("chunk of 0 bytes")));
}

TEST(ChunkAssembler, DataForAnItemWithoutDataIsTooMuch) {
  ChunkAssembler assembler({{0, true}});
  EXPECT_THAT(assembler.Add(Chunk(0, 0, "a")),
              StatusIs(kInvalid, HasSubstr("expected 0 bytes")));
}

TEST(ChunkAssembler, RefusedChunkChangesNothing) {
  ChunkAssembler assembler({{1, true}});
  ASSERT_THAT(assembler.Add(Chunk(0, 0, std::string("\x00\x00", 2))), IsOk());
  ASSERT_FALSE(assembler.Add(Chunk(0, 3, "x")).ok());
  ASSERT_THAT(assembler.Add(Chunk(0, 2, "\x80\x3f")), IsOk());
  EXPECT_THAT(*assembler.Take(0), ElementsAre(1.0f));
}

}  // namespace
}  // namespace kronserve
