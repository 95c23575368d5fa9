// What every Communicator backend must do. A backend joins by one line in
// INSTANTIATE_TEST_SUITE_P. Ranks are threads; each has its own end of the
// group, so nothing but the backend connects them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "common/testing/status_matchers.h"
#include "worker/collective/communicator.h"
#include "worker/collective/gloo/factory.h"
#include "worker/collective/loopback/factory.h"
#include "worker/testing/in_memory_rendezvous.h"

namespace kronserve::worker {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kAmple = absl::Seconds(20);
// Long enough to connect on a busy machine.
constexpr absl::Duration kShort = absl::Milliseconds(500);

struct Backend {
  std::string name;
  std::function<CommunicatorFactory()> create;
};

// One-time event with a deadline.
class Notification {
 public:
  void Notify() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    notified_ = true;
    changed_.NotifyAll();
  }
  bool Wait() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::Time deadline = SteadyClock().Now() + kAmple;
    MutexLock lock(&mu_);
    while (!notified_ && SteadyClock().Now() < deadline) {
      changed_.WaitFor(&mu_, deadline - SteadyClock().Now());
    }
    return notified_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool notified_ ABSL_GUARDED_BY(mu_) = false;
};

using Body = std::function<absl::Status(Communicator&)>;

class CommunicatorContractTest
    : public ::testing::TestWithParam<std::tuple<Backend, int>> {
 protected:
  int size() const { return std::get<1>(GetParam()); }

  // Runs `body` on every rank; the status per rank.
  std::vector<absl::Status> RunRanks(const Body& body,
                                     absl::Duration timeout = kAmple) {
    std::vector<absl::Status> results(size());
    std::vector<std::thread> threads;
    const std::string name = absl::StrCat("group", ++groups_);
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&, rank] {
        GroupSpec spec{name, rank, size(), timeout};
        auto group = factory_(spec, &rendezvous_);
        results[rank] = group.ok() ? body(**group) : group.status();
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  CommunicatorFactory factory_ = std::get<0>(GetParam()).create();
  testing::InMemoryRendezvous rendezvous_;
  int groups_ = 0;
};

TEST_P(CommunicatorContractTest, KnowsItsRankAndSize) {
  std::vector<int> seen(size(), -1);
  EXPECT_THAT(RunRanks([&](Communicator& group) {
                EXPECT_EQ(group.size(), size());
                seen[group.rank()] = group.rank();
                return group.Barrier();
              }),
              Each(IsOk()));
  for (int rank = 0; rank < size(); ++rank) EXPECT_EQ(seen[rank], rank);
}

template <typename Check>
absl::Status AtEachSize(std::initializer_list<size_t> sizes,
                        const Check& check) {
  for (const size_t n : sizes) KRONSERVE_RETURN_IF_ERROR(check(n));
  return absl::OkStatus();
}

// Each rank in turn sends `n` numbers of its own.
absl::Status BroadcastFromAll(Communicator& group, size_t n) {
  for (int root = 0; root < group.size(); ++root) {
    std::vector<int32_t> data(n, 10 * group.rank());
    KRONSERVE_RETURN_IF_ERROR(
        group.Broadcast(data.data(), n * sizeof(int32_t), root));
    EXPECT_EQ(std::count(data.begin(), data.end(), 10 * root), int64_t(n));
  }
  return absl::OkStatus();
}

// Sizes from nothing over one to several network packets.
TEST_P(CommunicatorContractTest, BroadcastsFromEveryRoot) {
  EXPECT_THAT(RunRanks([](Communicator& group) {
                return AtEachSize({0, 1, 3, 100'000}, [&](size_t n) {
                  return BroadcastFromAll(group, n);
                });
              }),
              Each(IsOk()));
}

TEST_P(CommunicatorContractTest, GathersInRankOrderOnTheRootOnly) {
  EXPECT_THAT(RunRanks([&](Communicator& group) {
                const int root = group.size() - 1;
                const int32_t mine[] = {group.rank(), -group.rank()};
                std::vector<int32_t> all;
                if (group.rank() == root) all.resize(size_t(group.size()) * 2);
                absl::Status status =
                    group.Gather(mine, sizeof(mine),
                                 all.empty() ? nullptr : all.data(), root);
                for (size_t i = 0; i < all.size(); i += 2) {
                  EXPECT_EQ(all[i], int32_t(i / 2));
                  EXPECT_EQ(all[i + 1], -int32_t(i / 2));
                }
                return status;
              }),
              Each(IsOk()));
}

absl::Status GatherEverywhere(Communicator& group, size_t n) {
  const std::vector<int32_t> mine(n, 7 + group.rank());
  std::vector<int32_t> all(n * group.size(), -1);
  KRONSERVE_RETURN_IF_ERROR(
      group.AllGather(mine.data(), n * sizeof(int32_t), all.data()));
  std::vector<int32_t> expected;
  for (int r = 0; r < group.size(); ++r) {
    expected.insert(expected.end(), n, 7 + r);
  }
  EXPECT_EQ(all, expected);
  return absl::OkStatus();
}

TEST_P(CommunicatorContractTest, GathersEverywhereInRankOrder) {
  EXPECT_THAT(RunRanks([](Communicator& group) {
                return AtEachSize({1, 50'000}, [&](size_t n) {
                  return GatherEverywhere(group, n);
                });
              }),
              Each(IsOk()));
}

TEST_P(CommunicatorContractTest, MinimumIsElementWise) {
  constexpr int64_t kBig = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(
      RunRanks([&](Communicator& group) {
        const int64_t rank = group.rank();
        std::vector<int64_t> values = {rank, -rank, kBig - rank,
                                       rank == 0 ? -kBig - 1 : 5};
        absl::Status status = group.AllReduceMin(values.data(), values.size());
        const int64_t last = group.size() - 1;
        EXPECT_THAT(values, ElementsAre(0, -last, kBig - last, -kBig - 1));
        return status;
      }),
      Each(IsOk()));
}

// `n` numbers whose sums are rounded.
std::vector<float> Fractions(size_t n, int rank) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i)
    values[i] = 1 / float(i + 1 + 3 * size_t(rank));
  return values;
}

absl::Status SumFractions(Communicator& group, size_t n) {
  std::vector<float> values = Fractions(n, group.rank());
  std::vector<float> expected = Fractions(n, 0);
  for (int r = 1; r < group.size(); ++r) {
    const std::vector<float> more = Fractions(n, r);
    std::transform(expected.begin(), expected.end(), more.begin(),
                   expected.begin(), std::plus<float>());
  }
  KRONSERVE_RETURN_IF_ERROR(group.AllReduceSum(values.data(), n));
  if (values == expected) return absl::OkStatus();  // The same bits.
  return absl::InternalError(absl::StrCat("wrong sum of ", n));
}

// Around the sizes where the work is split over the ranks.
TEST_P(CommunicatorContractTest, SumsEveryLengthInRankOrder) {
  EXPECT_THAT(RunRanks([](Communicator& group) {
                return AtEachSize(
                    {0, 1, 2, 5, 1024, 1025, 100'003},
                    [&](size_t n) { return SumFractions(group, n); });
              }),
              Each(IsOk()));
}

TEST_P(CommunicatorContractTest, ManyOperationsKeepTheirOrder) {
  EXPECT_THAT(RunRanks([&](Communicator& group) {
                for (int64_t i = 0; i < 200; ++i) {
                  int64_t value = i + group.rank();
                  absl::Status status = group.AllReduceMin(&value, 1);
                  if (!status.ok()) return status;
                  if (value != i) return absl::InternalError("mixed up");
                }
                return absl::OkStatus();
              }),
              Each(IsOk()));
}

// The last operation's data must arrive although its sender goes at once.
TEST_P(CommunicatorContractTest, LeavingAfterTheLastOperationLosesNothing) {
  for (int repeat = 0; repeat < 10; ++repeat) {
    EXPECT_THAT(RunRanks([&](Communicator& group) {
                  std::vector<int32_t> data(20'000, group.rank());
                  absl::Status status = group.Broadcast(
                      data.data(), data.size() * sizeof(int32_t), 0);
                  EXPECT_EQ(data.back(), 0);
                  return status;
                }),
                Each(IsOk()));
  }
}

TEST_P(CommunicatorContractTest, WrongRootIsRefusedAndTheGroupLives) {
  EXPECT_THAT(
      RunRanks([&](Communicator& group) {
        int32_t value = 0;
        std::vector<int32_t> all(group.size());
        EXPECT_THAT(group.Broadcast(&value, sizeof(value), group.size()),
                    StatusIs(absl::StatusCode::kInvalidArgument,
                             HasSubstr(absl::StrCat("root ", group.size()))));
        EXPECT_THAT(
            group.Gather(&value, sizeof(value), all.data(), -1),
            StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("root -1")));
        return group.Barrier();
      }),
      Each(IsOk()));
}

TEST_P(CommunicatorContractTest, AbortFailsLaterCallsOnEveryRank) {
  Notification aborted;
  const auto results = RunRanks([&](Communicator& group) {
    if (group.rank() == 0) {
      group.Abort();
      group.Abort();  // Idempotent.
      aborted.Notify();
    } else {
      EXPECT_TRUE(aborted.Wait());
    }
    EXPECT_THAT(group.Barrier(),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("group")));
    return group.Barrier();
  });
  EXPECT_THAT(results, Each(StatusIs(absl::StatusCode::kUnavailable,
                                     HasSubstr("finished"))));
}

TEST_P(CommunicatorContractTest, RefusesBadSpecifications) {
  const auto create = [&](int rank, int size) {
    return factory_(GroupSpec{"bad", rank, size, kAmple}, &rendezvous_)
        .status();
  };
  EXPECT_THAT(create(-1, 1), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("rank -1")));
  EXPECT_THAT(create(2, 2), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("rank 2 of 2")));
  EXPECT_THAT(create(0, 0), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("rank 0 of 0")));
}

// Cases that need somebody to wait for.
class MultiRankContractTest : public CommunicatorContractTest {};

TEST_P(MultiRankContractTest, AbortEndsAWaitInProgress) {
  Notification waiting;
  const auto results = RunRanks([&](Communicator& group) {
    if (group.rank() != 0) {
      waiting.Notify();
      return group.Barrier();  // Rank 0 never comes.
    }
    EXPECT_TRUE(waiting.Wait());
    group.Abort();
    return group.Barrier();
  });
  EXPECT_THAT(results,
              Each(StatusIs(absl::StatusCode::kUnavailable, HasSubstr(""))));
}

TEST_P(MultiRankContractTest, AbortFromAnotherThreadEndsTheOwnWait) {
  Notification gone;
  const auto results = RunRanks([&](Communicator& group) {
    if (group.rank() != 0) {  // Never comes, but does not leave either.
      EXPECT_TRUE(gone.Wait());
      return group.Barrier();
    }
    std::thread other([&group] { group.Abort(); });
    absl::Status status = group.Barrier();
    other.join();
    gone.Notify();
    return status;
  });
  EXPECT_THAT(results,
              Each(StatusIs(absl::StatusCode::kUnavailable, HasSubstr(""))));
}

TEST_P(MultiRankContractTest, ALateRankEndsTheWaitAndTheGroup) {
  Notification timed_out;
  absl::Status waited;
  const auto results = RunRanks(
      [&](Communicator& group) {
        const int last = group.size() - 1;
        if (group.rank() == last) {
          EXPECT_TRUE(timed_out.Wait());
          return group.Barrier();
        }
        absl::Status status = group.Barrier();
        if (group.rank() == 0) {
          waited = status;
          timed_out.Notify();
        }
        EXPECT_FALSE(status.ok());
        return group.Barrier();  // Use after the error.
      },
      kShort);
  // With several ranks waiting, one times out first and ends the others.
  EXPECT_THAT(
      waited,
      AnyOf(StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("group")),
            StatusIs(absl::StatusCode::kUnavailable, HasSubstr("group"))));
  EXPECT_THAT(results,
              Each(StatusIs(absl::StatusCode::kUnavailable, HasSubstr(""))));
}

TEST_P(MultiRankContractTest, ARankThatLeavesEndsTheWaitAtOnce) {
  const absl::Time start = SteadyClock().Now();
  const auto results = RunRanks([&](Communicator& group) {
    return group.rank() == 0 ? absl::OkStatus() : group.Barrier();
  });
  EXPECT_THAT(results[0], IsOk());
  for (int rank = 1; rank < size(); ++rank) {
    EXPECT_THAT(results[rank],
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("")));
  }
  EXPECT_LT(SteadyClock().Now() - start, kAmple / 2);
}

TEST_P(MultiRankContractTest, ARankThatNeverComesEndsTheConnecting) {
  EXPECT_THAT(
      factory_(GroupSpec{"lonely", 0, size(), absl::Milliseconds(20)},
               &rendezvous_)
          .status(),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("lonely")));
}

std::vector<Backend> Backends() {
  return {{"Loopback", [] { return LoopbackHub().Factory(); }},
          {"Gloo", [] { return CreateGlooFactory({}); }}};
}

std::string CaseName(
    const ::testing::TestParamInfo<std::tuple<Backend, int>>& info) {
  return absl::StrCat(std::get<0>(info.param).name, std::get<1>(info.param),
                      "Ranks");
}

INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorContractTest,
                         ::testing::Combine(::testing::ValuesIn(Backends()),
                                            ::testing::Values(1, 3, 4)),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Backends, MultiRankContractTest,
                         ::testing::Combine(::testing::ValuesIn(Backends()),
                                            ::testing::Values(3, 4)),
                         CaseName);

TEST(TimeoutTest, OneWaitingRankSeesDeadlineExceeded) {
  for (const Backend& backend : Backends()) {
    CommunicatorFactory factory = backend.create();
    testing::InMemoryRendezvous rendezvous;
    Notification done;
    std::thread silent([&] {
      auto group = factory(GroupSpec{"pair", 1, 2, kAmple}, &rendezvous);
      EXPECT_THAT(group, IsOk());
      EXPECT_TRUE(done.Wait());
    });
    auto group = factory(GroupSpec{"pair", 0, 2, kShort}, &rendezvous);
    EXPECT_THAT(group, IsOk());
    EXPECT_THAT((*group)->Barrier(),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         HasSubstr("group 'pair'")))
        << backend.name;
    done.Notify();
    silent.join();
  }
}

TEST(LoopbackHubTest, RefusesARankTakenOrAnotherSize) {
  LoopbackHub hub;
  const CommunicatorFactory factory = hub.Factory();
  // Whichever of the two specifications comes second is refused, so both are
  // repeated until the first rank waits.
  std::thread first([&] {
    absl::Status joined;
    do {
      joined = factory(GroupSpec{"g", 0, 2, kAmple}, nullptr).status();
    } while (joined.code() == absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(joined, IsOk());
  });
  absl::Status refused;
  do {
    refused =
        factory(GroupSpec{"g", 1, 3, absl::Milliseconds(1)}, nullptr).status();
  } while (refused.code() == absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("expected 3")));
  EXPECT_THAT(factory(GroupSpec{"g", 0, 2, kAmple}, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rank 0 is taken")));
  EXPECT_THAT(factory(GroupSpec{"g", 1, 2, kAmple}, nullptr), IsOk());
  first.join();
}

TEST(LoopbackHubTest, NamesRanksThatDisagreeOnASize) {
  LoopbackHub hub;
  const CommunicatorFactory factory = hub.Factory();
  const auto run = [&](int rank, size_t bytes) {
    auto group = factory(GroupSpec{"g", rank, 2, kAmple}, nullptr);
    std::vector<char> in(bytes);
    std::vector<char> out(2 * bytes);
    return (*group)->AllGather(in.data(), bytes, out.data());
  };
  absl::Status other;
  std::thread thread([&] { other = run(1, 8); });
  EXPECT_THAT(run(0, 4), StatusIs(absl::StatusCode::kInvalidArgument,
                                  HasSubstr("rank 1 sent 8 bytes")));
  thread.join();
  EXPECT_FALSE(other.ok());
}

TEST(GlooTest, RefusesAHostThatIsNotThisMachine) {
  testing::InMemoryRendezvous rendezvous;
  // TEST-NET-1 of RFC 5737: never an address of a machine.
  EXPECT_THAT(
      CreateGlooFactory({"192.0.2.1"})(GroupSpec{"g", 0, 2, kShort},
                                       &rendezvous),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("192.0.2.1")));
}

TEST(GlooTest, NeedsARendezvousForSeveralRanks) {
  EXPECT_THAT(
      CreateGlooFactory({})(GroupSpec{"g", 0, 2, kShort}, nullptr),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rendezvous")));
}

TEST(GlooTest, RefusesAddressesOfAnotherWorldSize) {
  testing::InMemoryRendezvous rendezvous;
  ASSERT_THAT(rendezvous.Put("g/rank/1", "short"), IsOk());
  EXPECT_THAT(
      CreateGlooFactory({})(GroupSpec{"g", 0, 2, kShort}, &rendezvous),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("world size")));
}

}  // namespace
}  // namespace kronserve::worker
