#include "client/routing_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/testing/messages.h"
#include "common/testing/status_matchers.h"

namespace kronserve::client {
namespace {

using ::kronserve::client::testing::MakeAssignment;
using ::kronserve::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

bool Adopt(RoutingTable& table, const v1::Assignment& assignment) {
  const auto adopted = table.Adopt(assignment);
  EXPECT_TRUE(adopted.ok()) << adopted.status();
  return adopted.ok() && *adopted;
}

TEST(RoutingTable, FirstAssignmentIsUsedAtOnceLaterOnesWhenAgreed) {
  RoutingTable table("job", 1);
  EXPECT_EQ(table.held_epoch(), 0u);
  EXPECT_TRUE(Adopt(table, MakeAssignment(1, 1, {{"a"}})));
  EXPECT_EQ(table.active_epoch(), 1u);
  EXPECT_TRUE(Adopt(table, MakeAssignment(2, 1, {{"b"}})));
  EXPECT_EQ(table.held_epoch(), 2u);
  EXPECT_EQ(table.active_epoch(), 1u);
  EXPECT_EQ(table.Owner(0, 5, table.active_epoch()), "a");

  table.Activate(2);
  EXPECT_EQ(table.Owner(0, 5, table.active_epoch()), "b");
}

TEST(RoutingTable, AgreedEpochNobodySawHereUsesTheOneBefore) {
  RoutingTable table("job", 1);
  Adopt(table, MakeAssignment(2, 1, {{"a"}}));
  Adopt(table, MakeAssignment(5, 1, {{"b"}}));
  table.Activate(4);
  EXPECT_EQ(table.active_epoch(), 2u);
  table.Activate(5);
  table.Activate(1);
  EXPECT_EQ(table.active_epoch(), 5u) << "went back";
}

TEST(RoutingTable, OlderEpochsAndTermsChangeNothing) {
  RoutingTable table("job", 1);
  Adopt(table, MakeAssignment(3, 2, {{"a"}}));
  EXPECT_FALSE(Adopt(table, MakeAssignment(3, 2, {{"b"}})));
  EXPECT_FALSE(Adopt(table, MakeAssignment(2, 9, {{"b"}})));
  EXPECT_FALSE(Adopt(table, MakeAssignment(4, 1, {{"b"}})));
  EXPECT_EQ(table.NewestOwner(0), "a");
  EXPECT_EQ(table.term(), 2u);
}

TEST(RoutingTable, OwnerFollowsFromStep) {
  RoutingTable table("job", 2);
  Adopt(table, MakeAssignment(1, 1, {{"a", 0}, {"a", 0}}));
  Adopt(table, MakeAssignment(2, 1, {{"b", 10}, {"a", 0}}));
  EXPECT_EQ(table.Owner(0, 9, 2), "a");
  EXPECT_EQ(table.Owner(0, 10, 2), "b");
  EXPECT_EQ(table.Owner(0, 10, 1), "a") << "epoch 1 knows no move";
  EXPECT_EQ(table.NewestOwner(0), "b");
  EXPECT_THAT(table.Owners(9, 2), ElementsAre("a"));
  EXPECT_THAT(table.Owners(10, 2), ElementsAre("a", "b"));
}

TEST(RoutingTable, SourceAnswersTheStepsBefore) {
  RoutingTable table("job", 2);
  Adopt(table, MakeAssignment(2, 1, {{"b", 10, "a"}, {"c", 0}}));
  EXPECT_EQ(table.Owner(0, 9, 2), "a");
  EXPECT_EQ(table.Owner(0, 10, 2), "b");
  EXPECT_EQ(table.NewestSource(0), "a");
  EXPECT_EQ(table.NewestSource(1), "");
  EXPECT_THAT(table.Owners(9, 2), ElementsAre("a", "c"));
  EXPECT_THAT(table.Owners(10, 2), ElementsAre("b", "c"));

  // "b" is lost before the state came: it stays with "a", then moves to "c".
  Adopt(table, MakeAssignment(3, 1, {{"a", 10}, {"c", 0}}));
  EXPECT_EQ(table.Owner(0, 9, 3), "a");
  EXPECT_EQ(table.Owner(0, 10, 3), "a");
  EXPECT_EQ(table.NewestSource(0), "");
  Adopt(table, MakeAssignment(4, 1, {{"c", 12, "a"}, {"c", 0}}));
  EXPECT_EQ(table.Owner(0, 11, 4), "a");
  EXPECT_EQ(table.Owner(0, 12, 4), "c");
}

TEST(RoutingTable, StepsBeforeAllThatIsHeldGoToTheNewestOwner) {
  RoutingTable table("job", 1);
  Adopt(table, MakeAssignment(7, 1, {{"b", 50}}));
  EXPECT_EQ(table.Owner(0, 49, 7), "b");
}

TEST(RoutingTable, LayerWithoutServerHasNoOwner) {
  RoutingTable table("job", 2);
  Adopt(table, MakeAssignment(1, 1, {{""}, {"a"}}));
  EXPECT_EQ(table.Owner(0, 0, 1), "");
  EXPECT_THAT(table.Owners(0, 1), ElementsAre("a"));
}

TEST(RoutingTable, KnowsAddressesOfOlderAssignments) {
  RoutingTable table("job", 1);
  Adopt(table, MakeAssignment(1, 1, {{"a"}}));
  Adopt(table, MakeAssignment(2, 1, {{"b"}}));
  EXPECT_EQ(table.Address("a"), "a:1");
  EXPECT_EQ(table.Address("b"), "b:1");
  EXPECT_EQ(table.Address("c"), "");
}

TEST(RoutingTable, HoldsABoundedNumber) {
  RoutingTable table("job", 1);
  for (uint64_t epoch = 1; epoch <= 100; ++epoch) {
    Adopt(table, MakeAssignment(epoch, 1,
                                {{"s" + std::to_string(epoch),
                                  static_cast<int64_t>(epoch)}}));
    table.Activate(epoch);
  }
  EXPECT_EQ(table.Owner(0, 100, 100), "s100");
  EXPECT_EQ(table.Owner(0, 90, 100), "s90");
  EXPECT_EQ(table.Owner(0, 1, 100), "s100") << "kept for ever";
}

TEST(RoutingTable, RefusesWhatDoesNotFitTheJob) {
  RoutingTable table("job", 2);
  v1::Assignment other_job = MakeAssignment(1, 1, {{"a"}, {"a"}});
  other_job.set_job("other");
  EXPECT_THAT(
      table.Adopt(other_job),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("job 'other'")));
  EXPECT_THAT(table.Adopt(MakeAssignment(1, 1, {{"a"}})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("names 1 layers, job 'job' has 2")));
  v1::Assignment swapped = MakeAssignment(1, 1, {{"a"}, {"a"}});
  swapped.mutable_owners(1)->set_layer(0);
  EXPECT_THAT(table.Adopt(swapped),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("entry 1 names layer 0")));
  v1::Assignment unnamed = MakeAssignment(1, 1, {{"a"}, {"b"}});
  unnamed.mutable_servers()->RemoveLast();
  EXPECT_THAT(table.Adopt(unnamed), StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("server 'b'")));
  unnamed = MakeAssignment(1, 1, {{"a"}, {"a", 5, "b"}});
  unnamed.mutable_servers()->RemoveLast();
  EXPECT_THAT(table.Adopt(unnamed), StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("source 'b'")));
  EXPECT_EQ(table.held_epoch(), 0u);
}

}  // namespace
}  // namespace kronserve::client
