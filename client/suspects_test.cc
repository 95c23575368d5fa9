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

TEST(Suspects, FindsAreSharedOnceAndNotPassedOn) {
  Suspects suspects;
  suspects.Add("a", kStart, "budget spent");
  suspects.AddShared("b", kStart);
  EXPECT_TRUE(suspects.Contains("b"));
  EXPECT_EQ(suspects.TakeFound(), std::set<std::string>{"a"});
  EXPECT_TRUE(suspects.TakeFound().empty());
  EXPECT_TRUE(suspects.TakeProbe("b", kStart + absl::Seconds(1)));
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
