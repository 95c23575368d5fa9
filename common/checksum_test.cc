#include "common/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace kronserve {
namespace {

// The buffer and values of xxHash's own sanity check (cli/xsum_sanity_check.c,
// XXH3 with seed 0); each length takes another path of the algorithm.
std::vector<uint8_t> SanityBuffer(size_t size) {
  std::vector<uint8_t> buffer(size);
  uint64_t generator = 2654435761u;
  for (uint8_t& byte : buffer) {
    byte = static_cast<uint8_t>(generator >> 56);
    generator *= 11400714785074694797ull;
  }
  return buffer;
}

TEST(Checksum, EqualsThePublishedVectors) {
  const struct {
    size_t length;
    uint64_t checksum;
  } kVectors[] = {{0, 0x2D06800538D394C2},    {1, 0xC44BDFF4074EECDB},
                  {6, 0x27B56A84CD2D7325},    {12, 0xA713DAF0DFBB77E7},
                  {24, 0xA3FE70BF9D3510EB},   {48, 0x397DA259ECBA1F11},
                  {80, 0xBCDEFBBB2C47C90A},   {195, 0xCD94217EE362EC3A},
                  {403, 0xCDEB804D65C6DEA4},  {512, 0x617E49599013CB6B},
                  {2048, 0xDD59E2C3A5F038E0}, {2240, 0x6E73A90539CF2948},
                  {2367, 0xCB37AEB9E5D361ED}};
  const std::vector<uint8_t> buffer = SanityBuffer(2367);
  for (const auto& vector : kVectors) {
    EXPECT_EQ(Checksum(buffer.data(), vector.length), vector.checksum)
        << vector.length << " bytes";
  }
}

TEST(Checksum, TakesNullForNoBytes) {
  EXPECT_EQ(Checksum(nullptr, 0), 0x2D06800538D394C2u);
}

TEST(Checksum, SeesEveryFlippedBit) {
  std::vector<uint8_t> buffer = SanityBuffer(300);
  const uint64_t before = Checksum(buffer.data(), buffer.size());
  for (size_t bit = 0; bit < 8 * buffer.size(); ++bit) {
    buffer[bit / 8] ^= 1u << (bit % 8);
    EXPECT_NE(Checksum(buffer.data(), buffer.size()), before) << bit;
    buffer[bit / 8] ^= 1u << (bit % 8);
  }
}

TEST(ChecksumStream, EqualsTheChecksumOfAllPieces) {
  // Past 240 bytes the algorithm is another one, past 1024 it has blocks.
  const std::vector<uint8_t> buffer = SanityBuffer(2367);
  for (const size_t piece : {1, 7, 240, 2366}) {
    ChecksumStream stream;
    for (size_t at = 0; at < buffer.size(); at += piece) {
      EXPECT_EQ(stream.Value(), Checksum(buffer.data(), at));
      stream.Add(buffer.data() + at, std::min(piece, buffer.size() - at));
    }
    EXPECT_EQ(stream.Value(), 0xCB37AEB9E5D361EDu) << piece;
  }
}

}  // namespace
}  // namespace kronserve
