#include "client/suspects.h"

#include <gtest/gtest.h>

namespace kronserve::client {
namespace {

const absl::Time kStart = absl::UnixEpoch();

TEST(Suspects, ProbesOnceAnInterval) {
  Suspects suspects;
  suspects.Add("a", kStart, "budget spent");
  EXPECT_TRUE(suspects.Contains("a"));
  EXPECT_FALSE(suspects.Contains("b"));
  EXPECT_FALSE(suspects.TakeProbe("a", kStart + absl::Milliseconds(999)));
  EXPECT_TRUE(suspects.TakeProbe("a", kStart + absl::Seconds(1)));
  EXPECT_FALSE(suspects.TakeProbe("a", kStart + absl::Milliseconds(1999)));
  EXPECT_TRUE(suspects.TakeProbe("a", kStart + absl::Seconds(2)));
  EXPECT_FALSE(suspects.TakeProbe("b", kStart + absl::Seconds(2)));
}

TEST(Suspects, AreSilentUntilHeardAndAgainWhenAProbeFails) {
  Suspects suspects;
  suspects.Heard("a");
  EXPECT_FALSE(suspects.IsSilent("a"));
  suspects.Add("a", kStart, "budget spent");
  EXPECT_TRUE(suspects.IsSilent("a"));
  suspects.Heard("a");
  EXPECT_FALSE(suspects.IsSilent("a"));
  EXPECT_TRUE(suspects.Contains("a"));
  suspects.Add("a", kStart + absl::Milliseconds(500), "refused");
  EXPECT_TRUE(suspects.IsSilent("a"));
  EXPECT_TRUE(suspects.TakeProbe("a", kStart + absl::Seconds(1)));
}

TEST(Suspects, KeepsOnlyThoseThatOwnSomething) {
  Suspects suspects;
  suspects.Add("a", kStart, "");
  suspects.Add("c", kStart, "");
  suspects.KeepOnly({"b", "c"});
  EXPECT_FALSE(suspects.Contains("a"));
  EXPECT_TRUE(suspects.Contains("c"));
}

TEST(Suspects, ReportsEachChangeOnce) {
  Suspects suspects;
  suspects.Clear("a");
  suspects.Add("a", kStart, "first");
  suspects.Add("a", kStart, "second");
  suspects.Clear("a");
  const auto changes = suspects.TakeChanges();
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_TRUE(changes[0].suspect);
  EXPECT_EQ(changes[0].reason, "first");
  EXPECT_FALSE(changes[1].suspect);
  EXPECT_TRUE(suspects.TakeChanges().empty());
}

}  // namespace
}  // namespace kronserve::client
