// What a gradient is answered: PROTOCOL.md 3, 4, 5 and 7.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "server/testing/core_driver.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::SampleLayer;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using testing::AsyncOptions;
using testing::ChecksumOf;
using testing::CoreDriver;
using testing::DefaultCoreOptions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MakeEmptyPiece;
using testing::MakeFactors;
using testing::MakeJob;
using testing::MakePushHeader;
using testing::MakeTensor;
using testing::SyncOptions;

// A [2, 2], G [1, 1], D [1, 2].
const v1::LayerSpec kLayer = SampleLayer("fc1", 1, 2);
const Tensor kGradient = MakeTensor({12, -24});

class StepTest : public ::testing::Test {
 protected:
  void Start(int num_ranks, const v1::JobOptions& options) {
    ASSERT_THAT(driver_.Configure(MakeJob({kLayer}, num_ranks, options)),
                IsOk());
  }

  void Push(int rank, int64_t step, float a, float g) {
    ASSERT_THAT(driver_.Push(rank, step, MakeFactors(0, kLayer, a, g, 4)),
                IsOk());
  }

  // A whole step of a job of one rank, without gradients.
  void Train(int64_t step, float a, float g) {
    Push(0, step, a, g);
    ASSERT_THAT(driver_.Commit(0, step), IsOk());
  }

  uint64_t Ask(int64_t step, absl::Duration timeout = absl::Seconds(1)) {
    return driver_.Ask(0, step, {0, 1, 2, kGradient}, timeout);
  }

  const v1::LayerReply* Find(uint64_t request) {
    const Reply* reply = driver_.executor.Find(request);
    return reply == nullptr ? nullptr : &reply->reply;
  }

  void ExpectFallback(uint64_t request, v1::FallbackReason reason) {
    ASSERT_NE(Find(request), nullptr);
    EXPECT_EQ(Find(request)->outcome(), v1::LAYER_OUTCOME_FALLBACK);
    EXPECT_EQ(Find(request)->reason(), reason) << Find(request)->message();
    EXPECT_FALSE(Find(request)->message().empty());
  }

  // Answered by merged round `version` of step `factor_step`.
  void ExpectVersion(uint64_t request, int64_t version, int64_t age) {
    ASSERT_NE(Find(request), nullptr);
    EXPECT_EQ(Find(request)->outcome(), v1::LAYER_OUTCOME_PRECONDITIONED)
        << Find(request)->message();
    EXPECT_EQ(Find(request)->version(), version);
    EXPECT_EQ(Find(request)->age(), age);
  }

  CoreDriver driver_;
};

TEST_F(StepTest, SynchronousAnswerComesFromThisStepsFactors) {
  Start(1, SyncOptions());
  Push(0, 0, 2, 3);
  const uint64_t request = Ask(0);
  const Reply* reply = driver_.executor.Find(request);
  ASSERT_NE(reply, nullptr);
  ExpectVersion(request, 1, 0);
  // V = D / (2 * 3); <V, D> = (12^2 + 24^2) / 6.
  EXPECT_THAT(*reply->value, ElementsAre(::testing::FloatNear(2, 1e-5f),
                                         ::testing::FloatNear(-4, 1e-5f)));
  EXPECT_NEAR(reply->reply.inner_product(), 120, 1e-3);
  EXPECT_EQ(reply->reply.rung(), v1::REFRESH_RUNG_DIRECT);
  EXPECT_EQ(reply->reply.damping(), 0);
  EXPECT_EQ(reply->reply.checksum(), ChecksumOf(reply->value));
  EXPECT_EQ(reply->epoch, 1);
  EXPECT_EQ(driver_.counters().preconditioned(), 1);
  EXPECT_EQ(driver_.counters().refreshes(), 1);
  EXPECT_EQ(driver_.core.Status().staged_bytes(), 0);
}

TEST_F(StepTest, WaitsForTheRoundOfItsStep) {
  Start(2, SyncOptions());
  const uint64_t request = Ask(0);
  Push(0, 0, 2, 3);
  Push(1, 0, 2, 3);
  EXPECT_EQ(Find(request), nullptr);
  ASSERT_THAT(driver_.Commit(1, 0), IsOk());
  ExpectVersion(request, 1, 0);
}

TEST_F(StepTest, EndsTheWaitBeforeTheCallersDeadline) {
  Start(2, SyncOptions());
  const uint64_t request = Ask(0, absl::Milliseconds(300));
  driver_.Advance(absl::Milliseconds(299));
  EXPECT_EQ(Find(request), nullptr);
  EXPECT_EQ(driver_.core.NextDeadline(), driver_.now + absl::Milliseconds(1));
  driver_.Advance(absl::Milliseconds(1));
  ExpectFallback(request, v1::FALLBACK_REASON_NOT_READY);
  EXPECT_EQ(driver_.counters().fallbacks(), 1);
  EXPECT_EQ(driver_.core.NextDeadline(), absl::InfiniteFuture());
}

TEST_F(StepTest, StepBudgetBoundsAWaitWithoutDeadline) {
  Start(2, AsyncOptions(1));
  const uint64_t request = Ask(0, absl::InfiniteDuration());
  driver_.Advance(absl::Milliseconds(2000));
  ExpectFallback(request, v1::FALLBACK_REASON_NOT_READY);
}

TEST_F(StepTest, RoundThatClosedWithoutAMergeMeansNoFactors) {
  Start(1, SyncOptions());
  const uint64_t request = Ask(0);
  EXPECT_EQ(Find(request), nullptr);  // Something may still come.
  ASSERT_THAT(driver_.Push(0, 0,
                           {MakeEmptyPiece(0, v1::FACTOR_KIND_INPUT),
                            MakeEmptyPiece(0, v1::FACTOR_KIND_OUTPUT)}),
              IsOk());
  ExpectFallback(request, v1::FALLBACK_REASON_NO_FACTORS);
}

TEST_F(StepTest, StepWithoutARoundBehindItHasNoFactorsAtOnce) {
  v1::JobOptions options = SyncOptions();
  options.set_factor_update_steps(5);
  auto job = MakeJob({kLayer}, 1, options);
  job.mutable_config()->mutable_world()->set_start_step(7);
  ASSERT_THAT(driver_.Configure(job), IsOk());
  ExpectFallback(Ask(7), v1::FALLBACK_REASON_NO_FACTORS);
}

TEST_F(StepTest, VoidStepIsAnsweredVoid) {
  Start(2, SyncOptions());
  Push(0, 0, 2, 3);
  const uint64_t waiting = Ask(0);
  ASSERT_THAT(driver_.Void(1, 0, "overflow"), IsOk());
  ExpectFallback(waiting, v1::FALLBACK_REASON_VOID);
  EXPECT_THAT(Find(waiting)->message(), HasSubstr("rank 1: overflow"));
  ExpectFallback(Ask(0), v1::FALLBACK_REASON_VOID);
}

TEST_F(StepTest, DroppedRoundIsSatisfiedByWhatIsPublished) {
  Start(1, SyncOptions());
  Train(0, 2, 3);
  ASSERT_THAT(driver_.Push(0, 1,
                           {MakeEmptyPiece(0, v1::FACTOR_KIND_INPUT),
                            MakeEmptyPiece(0, v1::FACTOR_KIND_OUTPUT)}),
              IsOk());
  ExpectVersion(Ask(1), 1, 1);
  EXPECT_EQ(driver_.counters().refreshes(), 1);
}

TEST_F(StepTest, SynchronousJobFollowsTheScheduleExactly) {
  v1::JobOptions options = SyncOptions();
  options.set_inv_update_steps(2);
  Start(1, options);
  Train(0, 1, 1);
  ExpectVersion(Ask(0), 1, 0);
  Train(1, 1, 1);  // Merged, but not refreshed: step 1 is not scheduled.
  ExpectVersion(Ask(1), 1, 1);
  driver_.executor.HoldRefreshes(true);
  Train(2, 1, 1);
  const uint64_t request = Ask(2);
  EXPECT_EQ(Find(request), nullptr);  // Waits although version 1 is there.
  driver_.executor.HoldRefreshes(false);
  driver_.Advance(absl::ZeroDuration());
  ExpectVersion(request, 3, 0);
}

TEST_F(StepTest, RefreshOfAStepWithoutARoundStartsWithItsFirstRequest) {
  v1::JobOptions options = SyncOptions();
  options.set_factor_update_steps(4);
  options.set_inv_update_steps(3);
  Start(1, options);
  Train(0, 1, 1);
  Train(4, 1, 1);  // Not scheduled: 3 was, and 6 will be.
  ExpectVersion(Ask(5), 1, 5);
  ExpectVersion(Ask(6), 2, 2);
}

// Bound 50; inverse of step 40: 90 is allowed, 91 is not.
TEST_F(StepTest, AnswerIsNeverOlderThanTheBound) {
  Start(1, AsyncOptions(50));
  Train(40, 2, 3);
  driver_.executor.HoldRefreshes(true);
  Train(41, 2, 3);
  ExpectVersion(Ask(90), 1, 50);
  const uint64_t request = Ask(91);
  EXPECT_EQ(Find(request), nullptr);
  driver_.Advance(absl::Seconds(1));
  ExpectFallback(request, v1::FALLBACK_REASON_NOT_READY);
}

TEST_F(StepTest, FirstRefreshIsWaitedForAtAnyStaleness) {
  Start(1, AsyncOptions(50));
  driver_.executor.HoldRefreshes(true);
  Train(0, 2, 3);
  const uint64_t request = Ask(0);
  EXPECT_EQ(Find(request), nullptr);
  driver_.executor.HoldRefreshes(false);
  driver_.Advance(absl::ZeroDuration());
  ExpectVersion(request, 1, 0);
}

TEST_F(StepTest, OneRefreshAtATimeAndTheLatestWins) {
  Start(1, AsyncOptions(50));
  driver_.executor.HoldRefreshes(true);
  Train(0, 2, 3);
  Train(1, 2, 3);
  Train(2, 2, 3);
  EXPECT_EQ(driver_.executor.held_refreshes(), 1u);
  driver_.executor.HoldRefreshes(false);
  driver_.Advance(absl::ZeroDuration());
  // Step 0's, then at once step 2's; step 1's was overtaken.
  EXPECT_EQ(driver_.counters().refreshes(), 2);
  ExpectVersion(Ask(2), 3, 0);
}

TEST_F(StepTest, FailedRefreshKeepsTheLastGoodWithinTheBound) {
  Start(1, AsyncOptions(2));
  Train(0, 2, 3);
  driver_.executor.FailRefreshes(true);
  Train(1, 2, 3);
  const uint64_t inside = Ask(2);
  ExpectVersion(inside, 1, 2);
  EXPECT_EQ(Find(inside)->rung(), v1::REFRESH_RUNG_LAST_GOOD);
  const uint64_t outside = Ask(3);
  ExpectFallback(outside, v1::FALLBACK_REASON_REFRESH_FAILED);
  EXPECT_THAT(Find(outside)->message(), HasSubstr("made to fail"));
  // Step 1's, and step 2's, which tried the same averages again.
  EXPECT_EQ(driver_.counters().refreshes_failed(), 2);
}

TEST_F(StepTest, FailedRefreshOfASynchronousJobFallsBackAtOnce) {
  Start(1, SyncOptions());
  driver_.executor.FailRefreshes(true);
  Push(0, 0, 2, 3);
  ExpectFallback(Ask(0), v1::FALLBACK_REASON_REFRESH_FAILED);
  driver_.executor.FailRefreshes(false);
  Push(0, 1, 2, 3);
  ExpectVersion(Ask(1), 2, 0);
}

TEST_F(StepTest, RepeatGetsTheSameAnswerAlsoAfterANewerRefresh) {
  Start(1, AsyncOptions(50));
  Train(0, 2, 3);
  const uint64_t first = Ask(0);
  Train(1, 4, 5);
  const uint64_t second = Ask(0);
  ExpectVersion(second, 1, 0);
  EXPECT_EQ(*driver_.executor.Find(second)->value,
            *driver_.executor.Find(first)->value);
  ExpectVersion(Ask(1), 2, 0);
  ExpectFallback(Ask(0), v1::FALLBACK_REASON_NOT_READY);  // Long over.
}

TEST_F(StepTest, FallbackIsRepeatedToo) {
  Start(2, SyncOptions());
  Ask(0, absl::Milliseconds(10));
  driver_.Advance(absl::Milliseconds(10));
  Push(0, 0, 2, 3);
  Push(1, 0, 2, 3);
  ASSERT_THAT(driver_.Commit(1, 0), IsOk());
  ExpectFallback(Ask(0), v1::FALLBACK_REASON_NOT_READY);
}

TEST_F(StepTest, NewDampingActsAtTheNextAnswerOfTheEigenForm) {
  v1::JobOptions options = AsyncOptions(10);
  options.set_method(v1::COMPUTE_METHOD_EIGEN);
  options.set_damping_form(v1::DAMPING_FORM_EXACT);
  options.set_inv_update_steps(10);
  Start(1, options);
  Train(0, 2, 3);
  EXPECT_EQ(Find(Ask(0))->damping(), 0);
  const auto pieces = MakeFactors(0, kLayer, 2, 3, 4);
  auto header = MakePushHeader(0, 1, pieces);
  header.set_damping(6);
  ASSERT_THAT(driver_.Push(header, pieces), IsOk());
  ASSERT_THAT(driver_.Commit(0, 1), IsOk());
  const uint64_t request = Ask(2);
  ExpectVersion(request, 1, 2);
  EXPECT_EQ(Find(request)->damping(), 6);
  // 12 / (2 * 3 + 6).
  EXPECT_NEAR((*driver_.executor.Find(request)->value)[0], 1, 1e-5);
}

TEST_F(StepTest, BadGradientsAreAnsweredByThemselves) {
  Start(1, SyncOptions());
  Push(0, 0, 2, 3);
  const Tensor bad = MakeTensor({1, std::numeric_limits<float>::quiet_NaN()});
  const uint64_t nan = driver_.Ask(0, 0, {0, 1, 2, bad});
  ExpectFallback(nan, v1::FALLBACK_REASON_BAD_GRADIENT);
  EXPECT_THAT(Find(nan)->message(),
              AllOf(HasSubstr("1 of 2"), HasSubstr("fc1"), HasSubstr("0")));
  const uint64_t shape = driver_.Ask(0, 0, {0, 2, 1, kGradient});
  ExpectFallback(shape, v1::FALLBACK_REASON_BAD_GRADIENT);
  EXPECT_THAT(Find(shape)->message(),
              HasSubstr("gradient is [2, 1], registered [1, 2]"));
  const uint64_t unknown = driver_.Ask(0, 0, {5, 1, 2, kGradient});
  ExpectFallback(unknown, v1::FALLBACK_REASON_BAD_GRADIENT);
  EXPECT_THAT(Find(unknown)->message(), HasSubstr("layer 5"));
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  ExpectFallback(driver_.Ask(0, 0, {0, kHuge, kHuge, kGradient}),
                 v1::FALLBACK_REASON_BAD_GRADIENT);
  ExpectFallback(driver_.Ask(0, 0, {0, -1, 2, kGradient}),
                 v1::FALLBACK_REASON_BAD_GRADIENT);
  // None of them is the answer of the step.
  ExpectVersion(Ask(0), 1, 0);
}

TEST_F(StepTest, ProductThatIsNotFiniteIsABadResult) {
  Start(1, SyncOptions());
  Push(0, 0, 1e-12f, 1e-12f);
  const Tensor large = MakeTensor({1e30f, 1e30f});
  ExpectFallback(driver_.Ask(0, 0, {0, 1, 2, large}),
                 v1::FALLBACK_REASON_BAD_RESULT);
}

TEST_F(StepTest, EndMustBeCommitOrVoid) {
  Start(1, SyncOptions());
  v1::PreconditionHeader header = CoreDriver::MakeEnd(0, 0);
  header.set_end(v1::STEP_END_UNSPECIFIED);
  EXPECT_THAT(driver_.End(header),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("end")));
}

TEST_F(StepTest, StagingLimitRefusesGradientsButTakesTheCommit) {
  CoreOptions options = DefaultCoreOptions();
  options.staging_limit_bytes = 24;  // A push takes 16, a gradient 16.
  CoreDriver driver(options);
  ASSERT_THAT(driver.Configure(MakeJob({kLayer}, 1, SyncOptions())), IsOk());
  driver.executor.HoldMerges(true);
  ASSERT_THAT(driver.Push(0, 0, MakeFactors(0, kLayer, 2, 3, 4)), IsOk());
  EXPECT_EQ(driver.core.Status().staged_bytes(), 16);
  EXPECT_THAT(driver.Push(0, 1, MakeFactors(0, kLayer, 2, 3, 4)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("needs 16"), HasSubstr("16 of 24"))));
  v1::PreconditionHeader header = CoreDriver::MakeEnd(0, 0);
  v1::GradientItem* item = header.add_items();
  item->set_rows(1);
  item->set_cols(2);
  item->set_checksum(ChecksumOf(kGradient));
  EXPECT_THAT(
      driver.End(header, {kGradient}),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("retry later")));
  // The commit closed the round, the merge makes room, the retry goes through.
  driver.executor.HoldMerges(false);
  driver.Advance(absl::ZeroDuration());
  const auto ticket = driver.End(header, {kGradient});
  ASSERT_THAT(ticket, IsOk());
  EXPECT_EQ(driver.executor.Find(ticket->requests[0])->reply.version(), 1);
  EXPECT_EQ(driver.core.Status().staged_bytes(), 0);
}

TEST_F(StepTest, CancelledRequestIsNotAnsweredAndStagesNothing) {
  Start(2, SyncOptions());
  const uint64_t request = Ask(0);
  EXPECT_EQ(driver_.core.Status().staged_bytes(), 16);
  driver_.core.Cancel(request);
  driver_.core.Cancel(request);
  EXPECT_EQ(driver_.core.Status().staged_bytes(), 0);
  driver_.Advance(absl::Hours(1));
  ASSERT_THAT(driver_.Drop(1), IsOk());
  EXPECT_EQ(Find(request), nullptr);
  EXPECT_EQ(driver_.counters().fallbacks(), 0);
}

TEST_F(StepTest, AbandonedPushStagesNothing) {
  Start(1, SyncOptions());
  const auto pieces = MakeFactors(0, kLayer, 2, 3, 4);
  Effects effects;
  auto ticket = driver_.core.BeginPush(MakePushHeader(0, 0, pieces),
                                       driver_.now, &effects);
  ASSERT_THAT(ticket, IsOk());
  EXPECT_EQ(driver_.core.Status().staged_bytes(), 16);
  driver_.core.AbandonPush(*ticket);
  EXPECT_EQ(driver_.core.Status().staged_bytes(), 0);
  EXPECT_EQ(driver_.core.FindLayerState("job", 0)->rounds().num_open(), 0);
}

}  // namespace
}  // namespace kronserve::server
