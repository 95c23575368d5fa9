// An even load without restlessness: joins, pins, and layers too dear to share.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "common/testing/status_matchers.h"
#include "placement/memory_model.h"
#include "scheduler/scheduler_core.h"
#include "scheduler/testing/core_harness.h"

namespace kronserve::scheduler {
namespace {

using ::kronserve::scheduler::testing::Claim;
using ::kronserve::scheduler::testing::CoreHarness;
using ::kronserve::scheduler::testing::SampleLayer;
using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class BalanceTest : public ::testing::Test {
 protected:
  void AddServers(int first, int last) {
    for (int i = first; i <= last; ++i) {
      ASSERT_THAT(h_.AddServer(absl::StrCat("s", i)), IsOk());
    }
  }

  void Train(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      h_.Advance(absl::Seconds(1));
      ASSERT_THAT(h_.Beat("j", 0, ++step_, 1, 1), IsOk());
    }
  }

  std::vector<std::string> Owners() {
    return CoreHarness::Owners(h_.JobNamed("j").assignment());
  }
  int64_t LayersOn(const std::string& server) {
    const std::vector<std::string> owners = Owners();
    return std::count(owners.begin(), owners.end(), server);
  }
  uint64_t Epoch() { return h_.JobNamed("j").assignment().epoch(); }

  v1::PinLayersRequest Pin(const std::string& layer,
                           const std::string& server) {
    v1::PinLayersRequest request;
    request.set_job("j");
    if (!layer.empty()) request.add_layers(layer);
    request.set_server(server);
    return request;
  }

  CoreHarness h_;
  int64_t step_ = 0;
};

TEST_F(BalanceTest, AFourthServerTakesItsQuarterOnce) {
  AddServers(1, 3);
  h_.JoinAll("j", 1, 30);
  Train(5);
  ASSERT_EQ(Epoch(), 1u);
  const std::vector<std::string> before = Owners();
  AddServers(4, 4);
  Train(200);
  // 30 / 4 is 7.5: the others keep 7 or 8 of their 10.
  EXPECT_GE(LayersOn("s4"), 6);
  EXPECT_LE(LayersOn("s4"), 8);
  EXPECT_EQ(Epoch(), 2u);  // Once.
  const std::vector<std::string> after = Owners();
  for (size_t i = 0; i < after.size(); ++i) {
    if (after[i] != before[i]) {
      EXPECT_EQ(after[i], "s4");
    }
  }
  EXPECT_THAT(h_.JobNamed("j").moving(), IsEmpty());
  EXPECT_THAT(h_.JobNamed("j").recoveries(), ::testing::SizeIs(30));
  EXPECT_THAT(h_.log, Not(Contains(HasSubstr("is lost"))));
}

// Jobs "few" and "many" with 6 and 18 equal layers on s1 and s2, and a third
// server that comes.
class TwoJobsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_THAT(h_.AddServer("s1"), IsOk());
    ASSERT_THAT(h_.AddServer("s2"), IsOk());
    h_.JoinAll("few", 1, 6);
    h_.JoinAll("many", 1, 18);
    Train(3);
  }

  void Train(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      h_.Advance(absl::Seconds(1));
      ++step_;
      for (const char* job : {"few", "many"}) {
        const v1::JobStatus status = h_.JobNamed(job);
        ASSERT_THAT(h_.Beat(job, 0, step_, status.world().version(), 1),
                    IsOk());
      }
      for (const auto& [name, server] : h_.servers) {
        ASSERT_LE(BytesOn(name), server.memory_bytes) << name;
      }
    }
  }

  void AddThird(int64_t memory_bytes) {
    testing::FakeServer& server = h_.servers["s3"];
    server.name = "s3";
    server.address = "s3:7000";
    server.memory_bytes = memory_bytes;
    ASSERT_THAT(h_.Register("s3"), IsOk());
  }

  static int64_t BytesOf(int num_layers) {
    const v1::JoinJobRequest claim = Claim("j", 0, 1, num_layers);
    std::vector<placement::LayerMemory> layers;
    for (const v1::LayerSpec& layer : claim.layers()) {
      layers.push_back(
          placement::DescribeLayerMemory(layer, claim.options(), 1));
    }
    return placement::PredictJobBytes(layers, /*refresh_threads=*/1,
                                      /*num_ranks=*/1);
  }

  int LayersOn(const std::string& job, const std::string& server) const {
    const v1::JobStatus status = h_.JobNamed(job);
    const auto& owners = status.assignment().owners();
    return static_cast<int>(
        std::count_if(owners.begin(), owners.end(), [&](const auto& owner) {
          return owner.server() == server || owner.source() == server;
        }));
  }
  int LayersOn(const std::string& server) const {
    return LayersOn("few", server) + LayersOn("many", server);
  }
  // With those on the way to it and those that are still to leave it.
  int64_t BytesOn(const std::string& server) const {
    return BytesOf(LayersOn("few", server)) + BytesOf(LayersOn("many", server));
  }

  CoreHarness h_;
  int64_t step_ = 0;
};

TEST_F(TwoJobsTest, BothMoveUntilAllServersHaveAsMuch) {
  // "few" is asked first and gives all it has: 9, 9 and 6. Then "many" has
  // one to move from each.
  AddThird(BytesOf(6) + BytesOf(2));
  Train(20);
  for (const char* server : {"s1", "s2", "s3"}) {
    EXPECT_EQ(LayersOn(server), 8) << server;
  }
  EXPECT_EQ(LayersOn("few", "s3"), 6);
  // Once each: neither goes after what the other has done.
  Train(100);
  EXPECT_EQ(h_.JobNamed("few").assignment().epoch(), 2u);
  EXPECT_EQ(h_.JobNamed("many").assignment().epoch(), 2u);
  EXPECT_THAT(h_.JobNamed("many").moving(), IsEmpty());
}

TEST_F(TwoJobsTest, WhatOneJobTakesTheOtherHasNoRoomFor) {
  // One layer of "many" alone would not lower the largest load of 9.
  AddThird(BytesOf(6) + BytesOf(2) - 1);
  Train(100);
  EXPECT_EQ(LayersOn("few", "s3"), 6);
  EXPECT_EQ(LayersOn("many", "s3"), 0);
  EXPECT_EQ(h_.JobNamed("many").assignment().epoch(), 1u);
}

TEST_F(TwoJobsTest, RoomOnTheWayIsTakenForBoth) {
  for (auto& [name, server] : h_.servers) server.hold_transfers = true;
  AddThird(BytesOf(6) + BytesOf(2));
  Train(20);
  EXPECT_EQ(LayersOn("s3"), 8);
  EXPECT_EQ(LayersOn("s1") + LayersOn("s2"), 24);  // Not gone yet.
  for (auto& [name, server] : h_.servers) server.hold_transfers = false;
  Train(5);
  EXPECT_EQ(LayersOn("s1") + LayersOn("s2"), 16);
}

TEST_F(BalanceTest, AGiantIsNamedAndNothingMoves) {
  AddServers(1, 3);
  v1::JoinJobRequest claim = Claim("j", 0, 1, 0);
  *claim.add_layers() = SampleLayer("giant", 8192, 8192);
  for (int i = 0; i < 10; ++i) {
    *claim.add_layers() = SampleLayer(absl::StrCat("small", i), 64, 64);
  }
  for (auto& [name, server] : h_.servers) {
    server.memory_bytes = int64_t{1} << 40;
    ASSERT_THAT(h_.Register(name), IsOk());
  }
  ASSERT_THAT(h_.Join(claim), IsOk());
  ASSERT_THAT(h_.Join(claim), IsOk());
  Train(100);
  AddServers(4, 4);
  Train(100);
  EXPECT_EQ(Epoch(), 1u);
  EXPECT_THAT(h_.JobNamed("j").placement_note(),
              AllOf(HasSubstr("layer 'giant' alone takes"),
                    HasSubstr("which no placement can share")));
}

TEST_F(BalanceTest, WaitsWhileAServerIsSuspect) {
  AddServers(1, 2);
  h_.JoinAll("j", 1, 12);
  Train(3);
  h_.servers["s2"].alive = false;
  h_.Advance(absl::Seconds(3));
  AddServers(3, 3);
  Train(2);
  EXPECT_EQ(LayersOn("s3"), 0);
  h_.servers["s2"].alive = true;
  Train(10);
  EXPECT_EQ(LayersOn("s3"), 4);
}

TEST_F(BalanceTest, OneRebalancingAfterTheOther) {
  AddServers(1, 2);
  h_.JoinAll("j", 1, 12);
  Train(3);
  for (auto& [name, server] : h_.servers) server.hold_transfers = true;
  AddServers(3, 3);
  Train(1);
  EXPECT_EQ(Epoch(), 2u);
  AddServers(4, 4);
  Train(10);
  EXPECT_EQ(Epoch(), 2u);
  EXPECT_EQ(LayersOn("s4"), 0);
  for (auto& [name, server] : h_.servers) server.hold_transfers = false;
  Train(12);
  EXPECT_EQ(LayersOn("s3"), 3);
  EXPECT_EQ(LayersOn("s4"), 3);
}

TEST_F(BalanceTest, ARestartOfTheSchedulerMovesNothing) {
  AddServers(1, 3);
  h_.JoinAll("j", 1, 5);  // 2, 2 and 1.
  Train(3);
  h_.Start();
  Train(20);
  EXPECT_EQ(Epoch(), 1u);
}

TEST_F(BalanceTest, PinnedLayersStayWhileTheirServerLives) {
  AddServers(1, 3);
  h_.JoinAll("j", 1, 6);
  Train(3);
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto pinned,
                                 h_.core->PinLayers(Pin("", "s1"), h_.now));
  EXPECT_EQ(pinned.layers_moving(), 4);
  h_.Pump();
  Train(10);
  EXPECT_THAT(Owners(), Each("s1"));
  // Over a restart, against a join.
  h_.Start();
  Train(3);
  AddServers(4, 4);
  Train(10);
  EXPECT_THAT(Owners(), Each("s1"));
  // Its server dies: they live elsewhere, and go back to it.
  h_.servers["s1"].alive = false;
  Train(8);
  EXPECT_THAT(Owners(), Not(Contains("s1")));
  EXPECT_THAT(Owners(), Not(Contains("")));
  h_.servers["s1"].Restart();
  ASSERT_THAT(h_.Register("s1"), IsOk());
  Train(10);
  EXPECT_THAT(Owners(), Each("s1"));
  // Untied, they spread.
  ASSERT_THAT(h_.core->PinLayers(Pin("", ""), h_.now), IsOk());
  Train(10);
  EXPECT_EQ(LayersOn("s1"), 2);
}

TEST_F(BalanceTest, APinnedServerCanBeDrained) {
  AddServers(1, 2);
  h_.JoinAll("j", 1, 4);
  Train(3);
  ASSERT_THAT(h_.core->PinLayers(Pin("", "s1"), h_.now), IsOk());
  Train(10);
  v1::DrainServerRequest drain;
  drain.set_server("s1");
  ASSERT_THAT(h_.core->DrainServer(drain, h_.now), IsOk());
  Train(10);
  EXPECT_THAT(Owners(), Each("s2"));
  EXPECT_THAT(h_.core->PinLayers(Pin("fc0", "s1"), h_.now),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("'s1' is being drained")));
}

TEST_F(BalanceTest, PinsAnswerWithTheirErrors) {
  AddServers(1, 2);
  h_.JoinAll("j", 1, 4);
  EXPECT_THAT(h_.core->PinLayers(v1::PinLayersRequest(), h_.now),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("job ''")));
  EXPECT_THAT(h_.core->PinLayers(Pin("nope", "s9"), h_.now),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("'nope'"), HasSubstr("'s9'"))));
  h_.servers["s2"].memory_bytes = 3 << 20;
  ASSERT_THAT(h_.Register("s2"), IsOk());
  v1::JoinJobRequest big = Claim("big", 0, 1, 0);
  *big.add_layers() = SampleLayer("wide", 512, 512);
  ASSERT_THAT(h_.Join(big), IsOk());
  v1::PinLayersRequest pin = Pin("wide", "s2");
  pin.set_job("big");
  EXPECT_THAT(h_.core->PinLayers(pin, h_.now),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("would need"), HasSubstr("it has"))));
}

TEST_F(BalanceTest, RefreshThreadsCountInMemory) {
  // 512 x 512: the workspace of one thread is 2 * 512^2 * 8 = 4 MiB.
  AddServers(1, 1);
  h_.JoinAll("j", 1, 1);
  h_.servers["s1"].memory_bytes = 30 << 20;
  h_.servers["s1"].refresh_threads = 16;
  ASSERT_THAT(h_.Register("s1"), IsOk());
  v1::JoinJobRequest big = Claim("big", 0, 1, 0);
  *big.add_layers() = SampleLayer("wide", 512, 512);
  EXPECT_THAT(h_.Join(big),
              StatusIs(absl::StatusCode::kResourceExhausted, ::testing::_));
  h_.servers["s1"].refresh_threads = 1;
  ASSERT_THAT(h_.Register("s1"), IsOk());
  EXPECT_THAT(h_.Join(big), IsOk());
}

}  // namespace
}  // namespace kronserve::scheduler
