#include "server/server_runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "common/testing/status_matchers.h"
#include "server/testing/core_driver.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::SampleLayer;
using testing::AsyncOptions;
using testing::ChecksumOf;
using testing::CoreDriver;
using testing::DefaultCoreOptions;
using testing::MakeFactors;
using testing::MakeJob;
using testing::MakePushHeader;
using testing::MakeTensor;
using testing::Piece;
using testing::SyncOptions;

const v1::LayerSpec kLayer = SampleLayer("fc1", 1, 2);
const Tensor kGradient = MakeTensor({12, -24});

// A value that another thread hands over.
template <typename T>
class Mail {
 public:
  void Put(T value) {
    MutexLock lock(&mu_);
    value_ = std::move(value);
    changed_.NotifyAll();
  }
  // Absent after ten seconds.
  std::optional<T> Get() {
    const absl::Time end = SteadyClock().Now() + absl::Seconds(10);
    MutexLock lock(&mu_);
    while (!value_.has_value() && SteadyClock().Now() < end) {
      changed_.WaitFor(&mu_, absl::Seconds(1));
    }
    return value_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::optional<T> value_ ABSL_GUARDED_BY(mu_);
};

// The machine's time; counts how often it is looked at.
class CountingClock final : public Clock {
 public:
  absl::Time Now() const override {
    ++looks_;
    return SteadyClock().Now();
  }
  int looks() const { return looks_; }

 private:
  mutable std::atomic<int> looks_{0};
};

class RuntimeTest : public ::testing::Test {
 protected:
  void Start(int num_ranks, const v1::JobOptions& job_options) {
    RuntimeOptions options;
    options.core = DefaultCoreOptions();
    options.device = linalg::Device::kCpu;
    options.clock = &clock_;
    auto runtime = ServerRuntime::Create(options);
    ASSERT_THAT(runtime, IsOk());
    runtime_ = *std::move(runtime);
    ASSERT_THAT(
        runtime_->ConfigureJob(MakeJob({kLayer}, num_ranks, job_options)),
        IsOk());
  }

  absl::StatusOr<v1::PushFactorsResponse> Push(int rank, int64_t step) {
    const auto pieces = MakeFactors(0, kLayer, 2, 3, 4);
    const auto header = MakePushHeader(rank, step, pieces);
    auto ticket = runtime_->BeginPush(header);
    if (!ticket.ok()) return ticket.status();
    std::vector<ArrivedTensor> tensors;
    for (const Piece& piece : pieces) {
      tensors.push_back({piece.tensor, piece.item.checksum(), {}});
    }
    auto mail =
        std::make_shared<Mail<absl::StatusOr<v1::PushFactorsResponse>>>();
    runtime_->StagePush(*ticket, header, tensors, [mail](auto response) {
      mail->Put(std::move(response));
    });
    return mail->Get().value_or(absl::DeadlineExceededError("no answer"));
  }

  std::shared_ptr<Mail<Reply>> Ask(int rank, int64_t step,
                                   absl::Duration timeout) {
    auto mail = std::make_shared<Mail<Reply>>();
    auto header = CoreDriver::MakeEnd(rank, step);
    v1::GradientItem* item = header.add_items();
    item->set_rows(1);
    item->set_cols(2);
    item->set_checksum(ChecksumOf(kGradient));
    auto ticket = runtime_->EndStep(
        header, timeout, [mail](Reply reply) { mail->Put(std::move(reply)); });
    EXPECT_THAT(ticket, IsOk());
    runtime_->AddGradient(ticket->requests[0],
                          {kGradient, item->checksum(), {}});
    return mail;
  }

  CountingClock clock_;
  std::unique_ptr<ServerRuntime> runtime_;
};

TEST_F(RuntimeTest, RanksTrainTogether) {
  constexpr int kRanks = 3;
  constexpr int kSteps = 20;
  Start(kRanks, SyncOptions());
  std::vector<std::thread> ranks;
  std::atomic<int> good{0};
  const auto train = [&](int rank) {
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_THAT(Push(rank, step), IsOk());
      const auto reply = Ask(rank, step, absl::Seconds(10))->Get();
      ASSERT_TRUE(reply.has_value());
      if (reply->reply.version() == step + 1 && reply->reply.age() == 0) ++good;
    }
  };
  for (int rank = 0; rank < kRanks; ++rank) ranks.emplace_back(train, rank);
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(good, kRanks * kSteps);
  const auto status = runtime_->Status();
  EXPECT_EQ(status.counters().rounds_merged(), kSteps);
  EXPECT_EQ(status.counters().preconditioned(), kRanks * kSteps);
  EXPECT_EQ(status.counters().fallbacks(), 0);
  EXPECT_EQ(status.staged_bytes(), 0);
  EXPECT_GT(status.refresh_busy_seconds(), 0);
}

TEST_F(RuntimeTest, TimerAnswersBeforeTheCallersDeadline) {
  Start(2, SyncOptions());
  const absl::Time start = SteadyClock().Now();
  const auto reply = Ask(0, 0, absl::Milliseconds(500))->Get();
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->reply.reason(), v1::FALLBACK_REASON_NOT_READY);
  EXPECT_GE(SteadyClock().Now() - start, absl::Milliseconds(400));
}

TEST_F(RuntimeTest, TimerSleepsUntilSomethingIsDue) {
  Start(2, SyncOptions());
  const auto reply = Ask(0, 0, absl::Milliseconds(250))->Get();
  ASSERT_TRUE(reply.has_value());
  // Every 5 milliseconds of the 225 waited for it would have been 45 times.
  EXPECT_LT(clock_.looks(), 20);
}

TEST_F(RuntimeTest, TimerMergesARoundInPart) {
  v1::JobOptions options = AsyncOptions(1);
  options.set_round_deadline_ms(20);
  Start(2, options);
  ASSERT_THAT(Push(0, 0), IsOk());
  const auto reply = Ask(0, 0, absl::Seconds(10))->Get();
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->reply.version(), 1) << reply->reply.message();
  EXPECT_EQ(runtime_->Status().counters().rounds_partial(), 1);
}

TEST_F(RuntimeTest, CancelledRequestIsNeverAnswered) {
  Start(2, SyncOptions());
  auto mail = std::make_shared<Mail<Reply>>();
  std::atomic<int> answers{0};
  auto header = CoreDriver::MakeEnd(0, 0);
  v1::GradientItem* item = header.add_items();
  item->set_rows(1);
  item->set_cols(2);
  auto ticket = runtime_->EndStep(header, absl::Seconds(10),
                                  [&answers](const Reply&) { ++answers; });
  ASSERT_THAT(ticket, IsOk());
  runtime_->Cancel(ticket->requests);
  ASSERT_THAT(runtime_->DropJob([] {
    v1::DropJobRequest drop;
    drop.set_term(1);
    drop.set_job("job");
    drop.set_world_version(1);
    return drop;
  }()),
              IsOk());
  runtime_.reset();
  EXPECT_EQ(answers, 0);
}

TEST_F(RuntimeTest, CallerThatKnowsMoreMakesTheServerAsk) {
  Start(1, SyncOptions());
  Mail<bool> behind;
  runtime_->OnBehind([&behind] { behind.Put(true); });
  auto header = CoreDriver::MakeEnd(0, 0);
  header.mutable_call()->set_world_version(2);
  EXPECT_EQ(runtime_->EndStep(header, absl::Seconds(1), [](const Reply&) {})
                .status()
                .code(),
            absl::StatusCode::kUnavailable);
  EXPECT_TRUE(behind.Get().has_value());
}

TEST_F(RuntimeTest, SnapshotTellsWhatIsHeld) {
  Start(1, SyncOptions());
  runtime_->SeeTerm(5);
  const RuntimeSnapshot snapshot = runtime_->Snapshot(/*registering=*/false);
  ASSERT_EQ(snapshot.held.size(), 1u);
  EXPECT_EQ(snapshot.held[0].job(), "job");
  EXPECT_EQ(snapshot.load.layers(), 1);
  EXPECT_GT(snapshot.load.predicted_bytes(), 0);
  EXPECT_EQ(snapshot.term_seen, 5u);
}

TEST_F(RuntimeTest, MayBeDestroyedWithWorkUnderWay) {
  for (int round = 0; round < 20; ++round) {
    Start(1, AsyncOptions(5));
    for (int step = 0; step < 3; ++step) {
      ASSERT_THAT(Push(0, step), IsOk());
      Ask(0, step, absl::Seconds(1));
    }
    runtime_.reset();
  }
}

TEST(ServerRuntime, DeviceThatIsNotHereIsAnError) {
  RuntimeOptions options;
  options.core = DefaultCoreOptions();
  options.device = linalg::Device::kCuda;
  options.clock = &SteadyClock();
  EXPECT_EQ(ServerRuntime::Create(options).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace kronserve::server
