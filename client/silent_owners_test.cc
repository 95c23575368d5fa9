#include "client/silent_owners.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/testing/messages.h"

namespace kronserve::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const absl::Time kStart = absl::UnixEpoch();

// Layers 0 and 1 are a's, layer 2 is b's.
struct Rank {
  Rank() { Adopt(1, {{"a"}, {"a"}, {"b"}}); }
  void Adopt(uint64_t epoch, const std::vector<testing::Owner>& owners) {
    EXPECT_TRUE(routing.Adopt(testing::MakeAssignment(epoch, 1, owners)).ok());
  }
  std::vector<bool> Silent() const {
    return SilentOwners(routing, 3, 5, suspects);
  }
  void Take(const std::vector<bool>& silent, uint64_t epoch = 1) {
    TakeVote(5, silent, epoch, kStart, {&routing, &suspects});
  }
  RoutingTable routing{"job", 3};
  Suspects suspects;
};

TEST(SilentOwners, ASuspectOfOneIsOneOfAll) {
  Rank one, other;
  one.suspects.Add("a", kStart, "budget spent");
  EXPECT_THAT(one.Silent(), ElementsAre(true, true, false));
  EXPECT_THAT(other.Silent(), ElementsAre(false, false, false));
  other.Take({true, true, false});
  EXPECT_THAT(other.Silent(), ElementsAre(true, true, false));
  EXPECT_FALSE(other.suspects.Contains("b"));
}

TEST(SilentOwners, ASuspicionEndsForAllWhenTheLastHasHeardIt) {
  Rank rank;
  rank.suspects.Add("a", kStart, "budget spent");
  rank.suspects.Heard("a");
  EXPECT_THAT(rank.Silent(), ElementsAre(false, false, false));
  rank.Take({true, true, false});  // Another one has not.
  EXPECT_TRUE(rank.suspects.Contains("a"));
  EXPECT_THAT(rank.Silent(), ElementsAre(false, false, false));
  rank.Take({false, false, false});
  EXPECT_FALSE(rank.suspects.Contains("a"));
}

// A layer that is placed on it later is asked for like any other.
TEST(SilentOwners, AServerThatOwnsNothingIsNoSuspect) {
  Rank rank;
  rank.suspects.Add("a", kStart, "budget spent");
  rank.Adopt(2, {{"b"}, {"b"}, {"b"}});
  rank.Take({true, true, false}, 1);
  EXPECT_TRUE(rank.suspects.Contains("a"));
  rank.Take({true, true, false}, 2);
  EXPECT_EQ(rank.routing.active_epoch(), 2u);
  EXPECT_FALSE(rank.suspects.Contains("a"));
}

TEST(SilentOwners, ALayerWithoutAnOwnerSuspectsNobody) {
  Rank rank;
  rank.Adopt(2, {{""}, {"a"}, {"b"}});
  rank.Take({false, false, false}, 2);
  rank.Take({true, false, false}, 2);
  EXPECT_THAT(rank.suspects.TakeChanges(), IsEmpty());
}

}  // namespace
}  // namespace kronserve::client
