#include "checkpoint/trainer_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "checkpoint/testing/temporary_folder.h"
#include "checkpoint/testing/trainer_bytes.h"
#include "common/testing/status_matchers.h"

namespace kronserve::checkpoint {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::HasSubstr;

auto IsLost(const char* what) {
  return StatusIs(absl::StatusCode::kDataLoss, HasSubstr(what));
}

TEST(CheckTrainerBytesTest, TakesWhatFitsItsHeader) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const TrainerHeader header,
                                 CheckTrainerBytes(TrainerBytes(2, 4, 3, 9)));
  EXPECT_EQ(header.next_step, 7);
  EXPECT_EQ(header.floats, 3);
  EXPECT_THAT(CheckTrainerBytes(TrainerBytes(2, 0, 3, 3)), IsOk());
  EXPECT_THAT(CheckTrainerBytes(TrainerBytes(0, 0, 0, 0)), IsOk());
}

TEST(CheckTrainerBytesTest, EveryFlippedBitAndEveryCutIsFound) {
  const std::string bytes = TrainerBytes(2, 2, 3, 6);
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string flipped = bytes;
    flipped[at] ^= 1;
    EXPECT_THAT(CheckTrainerBytes(flipped),
                IsLost(at < 8 ? "format version" : "checksum"))
        << at;
    EXPECT_THAT(CheckTrainerBytes(bytes.substr(0, at)),
                IsLost(at < 56 ? "cut off" : "checksum"))
        << at;
  }
}

TEST(CheckTrainerBytesTest, NumbersThatContradictTheSizeAreRefused) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(CheckTrainerBytes(TrainerBytes(2, 2, 3, 5)),
              IsLost("2 matrices of 3 numbers with 2 optimizer slots"));
  EXPECT_THAT(CheckTrainerBytes(TrainerBytes(2, 3, 3, 6)),
              IsLost("contradicts its header"));
  EXPECT_THAT(CheckTrainerBytes(TrainerBytes(0, 3, 3, 6)),
              IsLost("contradicts its header"));
  EXPECT_THAT(CheckTrainerBytes(TrainerBytes(1, kMost - 1, kMost, 6)),
              IsLost("contradicts its header"));
  EXPECT_THAT(CheckTrainerBytes(TrainerBytes(1, 0, -6, 6)),
              IsLost("contradicts its header"));
}

TEST(ReadTrainerBytesTest, ReadsAllOrNamesTheFile) {
  const TemporaryFolder folder;
  const std::string path = folder / "TRAINER";
  EXPECT_THAT(ReadTrainerBytes(path),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(path)));
  WriteBytes(path, "some bytes");
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const std::string bytes,
                                 ReadTrainerBytes(path));
  EXPECT_EQ(bytes, "some bytes");
}

}  // namespace
}  // namespace kronserve::checkpoint
