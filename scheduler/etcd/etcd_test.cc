// Election and store against a real etcd; what every store must do is in
// state_store_contract_test.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "scheduler/etcd/etcd_client.h"
#include "scheduler/etcd/factory.h"
#include "scheduler/etcd/state_store.h"
#include "scheduler/testing/etcd_process.h"

namespace kronserve::scheduler::etcd {
namespace {

using ::kronserve::scheduler::testing::EtcdProcess;
using ::kronserve::scheduler::testing::FreePort;
using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr absl::Duration kPatience = absl::Seconds(30);

class EtcdTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { etcd_ = new EtcdProcess; }
  static void TearDownTestSuite() { delete etcd_; }

  void SetUp() override {
    options_.endpoints = etcd_->endpoint();
    options_.prefix = absl::StrCat(
        "/", ::testing::UnitTest::GetInstance()->current_test_info()->name(),
        "/");
    options_.lease = absl::Seconds(2);
  }

  std::unique_ptr<Election> Candidate() const {
    return CreateElection(options_, &SteadyClock());
  }

  static bool Leads(const absl::StatusOr<Election::Result>& result) {
    return result.ok() && result->leads_until > SteadyClock().Now();
  }

  // Deletes the leader key, as the end of its lease does.
  void Depose() {
    EtcdClient client(options_.endpoints);
    etcdserverpb::TxnRequest txn;
    txn.add_success()->mutable_request_delete_range()->set_key(
        LeaderKey(options_));
    ASSERT_THAT(client.Txn(txn), IsOk());
  }

  // One for all tests; each has a prefix of its own.
  inline static EtcdProcess* etcd_ = nullptr;
  EtcdOptions options_;
};

TEST_F(EtcdTest, OneLeadsTheOtherIsToldWho) {
  auto first = Candidate();
  auto second = Candidate();
  const auto won = first->Campaign("a:1");
  ASSERT_TRUE(Leads(won)) << won.status();
  EXPECT_EQ(won->leader, "a:1");
  EXPECT_LE(won->leads_until, SteadyClock().Now() + absl::Seconds(2));
  const auto lost = second->Campaign("b:2");
  ASSERT_THAT(lost, IsOk());
  EXPECT_FALSE(Leads(lost));
  EXPECT_EQ(lost->leader, "a:1");
  const auto renewed = first->Campaign("a:1");
  ASSERT_TRUE(Leads(renewed));
  EXPECT_EQ(renewed->leadership, won->leadership);
  EXPECT_GT(renewed->leads_until, won->leads_until);
}

TEST_F(EtcdTest, AfterAResignationAnotherLeadsAtOnceWithAHigherTerm) {
  auto first = Candidate();
  auto second = Candidate();
  const auto won = first->Campaign("a:1");
  ASSERT_TRUE(Leads(won));
  EXPECT_EQ(*RaiseTerm(first->OpenStore().get()),
            static_cast<uint64_t>(won->leadership));
  first->Resign();
  const auto next = second->Campaign("b:2");
  ASSERT_TRUE(Leads(next));
  EXPECT_EQ(next->leader, "b:2");
  EXPECT_GT(next->leadership, won->leadership);
  EXPECT_EQ(*RaiseTerm(second->OpenStore().get()),
            static_cast<uint64_t>(next->leadership));
}

TEST_F(EtcdTest, WhoFallsSilentIsReplaced) {
  auto first = Candidate();
  auto second = Candidate();
  const auto won = first->Campaign("a:1");
  ASSERT_TRUE(Leads(won));
  const absl::Time deadline = SteadyClock().Now() + kPatience;
  absl::StatusOr<Election::Result> next = second->Campaign("b:2");
  while (!Leads(next) && SteadyClock().Now() < deadline) {
    next = second->Campaign("b:2");
  }
  ASSERT_TRUE(Leads(next));
  // The first one knew it before the second one could win.
  EXPECT_LT(won->leads_until, SteadyClock().Now());
  const auto late = first->Campaign("a:1");
  ASSERT_THAT(late, IsOk());
  EXPECT_FALSE(Leads(late));
  EXPECT_EQ(late->leader, "b:2");
}

TEST_F(EtcdTest, ADeposedLeaderWritesNothing) {
  auto first = Candidate();
  auto second = Candidate();
  ASSERT_TRUE(Leads(first->Campaign("a:1")));
  auto old_store = first->OpenStore();
  ASSERT_THAT(old_store->Write({{"job", "of a"}}), IsOk());
  Depose();
  EXPECT_THAT(old_store->Write({{"job", "late"}}),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("nobody does")));
  ASSERT_TRUE(Leads(second->Campaign("b:2")));
  auto store = second->OpenStore();
  EXPECT_THAT(*store->Load(), ElementsAre(Pair("job", "of a")));
  ASSERT_THAT(store->Write({{"job", "of b"}}), IsOk());
  EXPECT_THAT(old_store->Write({{"job", "late"}}),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("b:2 does")));
  EXPECT_THAT(*store->Load(), ElementsAre(Pair("job", "of b")));
}

TEST_F(EtcdTest, SurvivesAKilledEtcd) {
  auto election = Candidate();
  const auto won = election->Campaign("a:1");
  ASSERT_TRUE(Leads(won));
  auto store = election->OpenStore();
  ASSERT_THAT(store->Write({{"job", "1"}}), IsOk());
  etcd_->Kill();
  EXPECT_THAT(
      store->Write({{"job", "2"}}),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("etcd at 127.0.0.1")));
  EXPECT_THAT(election->Campaign("a:1"),
              StatusIs(absl::StatusCode::kUnavailable, _));
  etcd_->Start();
  ASSERT_TRUE(Leads(election->Campaign("a:1")));
  EXPECT_THAT(*store->Load(), ElementsAre(Pair("job", "1")));
  EXPECT_THAT(store->Write({{"job", "2"}}), IsOk());
  EXPECT_THAT(*store->Load(), ElementsAre(Pair("job", "2")));
}

// What a frozen etcd does with a write whose caller gave up is not known; it
// must not undo the next one.
TEST_F(EtcdTest, AWriteThatSeemedLostDoesNotUndoItsSuccessor) {
  options_.lease = absl::Seconds(30);
  auto election = Candidate();
  ASSERT_TRUE(Leads(election->Campaign("a:1")));
  auto store = election->OpenStore();
  ASSERT_THAT(store->Write({{"job", "1"}}), IsOk());
  etcd_->Freeze();
  EXPECT_THAT(store->Write({{"job", "2"}}),
              StatusIs(absl::StatusCode::kUnavailable, _));
  etcd_->Thaw();
  ASSERT_THAT(store->Write({{"job", "3"}}), IsOk());
  EXPECT_THAT(*store->Load(), ElementsAre(Pair("job", "3")));
}

TEST_F(EtcdTest, AsksTheNextMemberWhenOneIsDown) {
  options_.endpoints =
      absl::StrCat("127.0.0.1:", FreePort(), ", ", etcd_->endpoint());
  auto election = Candidate();
  EXPECT_TRUE(Leads(election->Campaign("a:1")));
  EXPECT_THAT(election->OpenStore()->Write({{"job", "1"}}), IsOk());
}

TEST_F(EtcdTest, MembersThatHangTakeNoMoreTimeThanOne) {
  EtcdClient client(absl::StrCat(etcd_->endpoint(), ",", etcd_->endpoint()));
  ASSERT_THAT(client.Range(RangeOfKey("key")), IsOk());
  etcd_->Freeze();
  const absl::Time start = SteadyClock().Now();
  EXPECT_THAT(client.Range(RangeOfKey("key")),
              StatusIs(absl::StatusCode::kUnavailable, _));
  // 2 s, and a margin for a busy machine; with 2 s for each it would be 4.
  EXPECT_LT(SteadyClock().Now() - start, absl::Seconds(3.5));
  etcd_->Thaw();
  EXPECT_THAT(client.Range(RangeOfKey("key")), IsOk());
}

TEST_F(EtcdTest, PrefixesDoNotSeeEachOther) {
  auto first = Candidate();
  ASSERT_TRUE(Leads(first->Campaign("a:1")));
  ASSERT_THAT(first->OpenStore()->Write({{"job", "1"}}), IsOk());
  options_.prefix = "/other/";
  auto second = Candidate();
  ASSERT_TRUE(Leads(second->Campaign("b:2")));
  EXPECT_THAT(*second->OpenStore()->Load(), ElementsAre());
}

TEST_F(EtcdTest, LoadsManyAndLargeValues) {
  auto election = Candidate();
  ASSERT_TRUE(Leads(election->Campaign("a:1")));
  auto store = election->OpenStore();
  // 12 MiB in all, more than one message may have.
  for (int i = 0; i < 12; ++i) {
    ASSERT_THAT(
        store->Write({{absl::StrCat("job/", i), std::string(1 << 20, 'x')}}),
        IsOk());
  }
  const absl::StatusOr<StateMap> state = store->Load();
  ASSERT_THAT(state, IsOk());
  EXPECT_EQ(state->size(), 12u);
  EXPECT_EQ(state->at("job/11").size(), size_t{1} << 20);
}

}  // namespace
}  // namespace kronserve::scheduler::etcd
