#include "checkpoint/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "common/testing/status_matchers.h"

namespace kronserve::checkpoint {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::HasSubstr;

TEST(EscapeNameTest, KeepsWhatIsHarmless) {
  EXPECT_EQ(EscapeName("layer1.0.conv1"), "layer1.0.conv1");
  EXPECT_EQ(EscapeName("a-b_C9"), "a-b_C9");
}

TEST(EscapeNameTest, NoNameLeavesItsFolderOrHides) {
  EXPECT_EQ(EscapeName("."), "%2E");
  EXPECT_EQ(EscapeName(".."), "%2E.");
  EXPECT_EQ(EscapeName("../../etc"), "%2E.%2F..%2Fetc");
  EXPECT_EQ(EscapeName("a/b"), "a%2Fb");
  EXPECT_EQ(EscapeName(".servers"), "%2Eservers");
  EXPECT_EQ(EscapeName(std::string("a\0b", 3)), "a%00b");
  EXPECT_EQ(EscapeName("a\nb"), "a%0Ab");
  EXPECT_EQ(EscapeName("\xc3\xa4"), "%C3%A4");
}

TEST(EscapeNameTest, DifferentNamesStayDifferent) {
  EXPECT_EQ(EscapeName(""), "%");
  EXPECT_EQ(EscapeName("%"), "%25");
  EXPECT_EQ(EscapeName("%2F"), "%252F");
  EXPECT_EQ(EscapeName("~"), "%7E");
}

TEST(EscapeNameTest, LongNamesAreBoundedAndStayDifferent) {
  const std::string at_limit(120, 'a');
  EXPECT_EQ(EscapeName(at_limit), at_limit);
  const std::string one = EscapeName(at_limit + "b");
  const std::string two = EscapeName(at_limit + "c");
  EXPECT_EQ(one.size(), 100u + 1 + 16);
  EXPECT_EQ(one.substr(0, 101), std::string(100, 'a') + "~");
  EXPECT_NE(one, two);
  // 33 whole %XX fit into 100 bytes.
  EXPECT_EQ(EscapeName(std::string(90, '/')).size(), 99u + 1 + 16);
}

TEST(CheckCheckpointIdTest, TakesWhatNamesAFolder) {
  EXPECT_THAT(CheckCheckpointId("step-1000_a.b"), IsOk());
  EXPECT_THAT(CheckCheckpointId(std::string(64, 'x')), IsOk());
}

TEST(CheckCheckpointIdTest, RefusesEverythingElse) {
  for (const std::string& id :
       {std::string(), std::string("."), std::string(".."), std::string(".a"),
        std::string("a/b"), std::string("a b"), std::string("a\n"),
        std::string("a\0b", 3), std::string(65, 'x')}) {
    EXPECT_THAT(CheckCheckpointId(id),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("1 to 64 of [A-Za-z0-9._-]")))
        << id;
  }
}

TEST(IsPlainFileNameTest, StaysInItsFolder) {
  EXPECT_TRUE(IsPlainFileName("00000-fc-epoch1.kron"));
  EXPECT_FALSE(IsPlainFileName(""));
  EXPECT_FALSE(IsPlainFileName(".."));
  EXPECT_FALSE(IsPlainFileName(".hidden"));
  EXPECT_FALSE(IsPlainFileName("a/b"));
  EXPECT_FALSE(IsPlainFileName("/etc/passwd"));
  EXPECT_FALSE(IsPlainFileName(std::string("a\0", 2)));
  EXPECT_FALSE(IsPlainFileName(std::string(256, 'a')));
}

TEST(BackgroundFileNameTest, GoesThereAndBack) {
  EXPECT_EQ(BackgroundFileName({7, 2, 1041}), "epoch7-world2-step1041.kron");
  EXPECT_EQ(BackgroundFileName({1, 1, -1}), "epoch1-world1-step-1.kron");
  const auto key = ParseBackgroundFileName("epoch7-world2-step1041.kron");
  ASSERT_TRUE(key.has_value());
  EXPECT_EQ(key->epoch, 7u);
  EXPECT_EQ(key->world_version, 2);
  EXPECT_EQ(key->closed_through, 1041);
  EXPECT_EQ(
      ParseBackgroundFileName("epoch1-world1-step-1.kron")->closed_through, -1);
  const BackgroundKey largest{std::numeric_limits<uint64_t>::max(),
                              std::numeric_limits<int64_t>::max(),
                              std::numeric_limits<int64_t>::max()};
  EXPECT_EQ(ParseBackgroundFileName(BackgroundFileName(largest))->epoch,
            largest.epoch);
}

TEST(BackgroundFileNameTest, OtherNamesAreNone) {
  for (const char* name :
       {"", "epoch7-world2-step3", "epoch07-world2-step3.kron",
        "epoch7-world2.kron", "epoch7-world2-step3.kron.kron",
        "epoch99999999999999999999-world2-step3.kron", "epoch-1-world2-step3",
        "epoch 7-world2-step3.kron", "MANIFEST", ".tmp-s1-0-1"}) {
    EXPECT_FALSE(ParseBackgroundFileName(name).has_value()) << name;
  }
}

TEST(BackgroundKeyTest, EpochBeatsWorldBeatsStep) {
  EXPECT_TRUE((BackgroundKey{3, 9, 9000} < BackgroundKey{4, 1, 1}));
  EXPECT_TRUE((BackgroundKey{4, 1, 9000} < BackgroundKey{4, 2, 1}));
  EXPECT_TRUE((BackgroundKey{4, 2, -1} < BackgroundKey{4, 2, 0}));
  // As numbers, not as text.
  EXPECT_TRUE((BackgroundKey{9, 1, 1} < BackgroundKey{10, 1, 1}));
  EXPECT_FALSE((BackgroundKey{4, 2, 1} < BackgroundKey{4, 2, 1}));
}

TEST(FoldersTest, EveryPartIsEscaped) {
  EXPECT_EQ(LayerFolder(RunFolder("/d", "../j", "r/1"), "fc/1"),
            "/d/%2E.%2Fj/background/r%2F1/fc%2F1");
  EXPECT_EQ(CheckpointFolder("/d", "j", "id"), "/d/j/checkpoints/id");
  EXPECT_EQ(JobLayerFileName(12, "fc/1", 7), "00012-fc%2F1-epoch7.kron");
}

}  // namespace
}  // namespace kronserve::checkpoint
