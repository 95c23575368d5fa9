#include "common/incarnation.h"

#include <gtest/gtest.h>

#include <set>

namespace kronserve {
namespace {

TEST(Incarnation, IsNeverZeroAndDoesNotRepeat) {
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t incarnation = DrawIncarnation();
    EXPECT_NE(incarnation, 0u);
    EXPECT_TRUE(seen.insert(incarnation).second);
  }
}

TEST(Incarnation, UsesBothHalves) {
  uint64_t all = 0;
  for (int i = 0; i < 64; ++i) all |= DrawIncarnation();
  EXPECT_NE(all >> 32, 0u);
  EXPECT_NE(all & 0xffffffffu, 0u);
}

}  // namespace
}  // namespace kronserve
