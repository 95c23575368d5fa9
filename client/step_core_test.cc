#include "client/step_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "client/testing/messages.h"
#include "client/testing/step_core_fixture.h"

namespace kronserve::client {
namespace {

using ::kronserve::client::testing::Ended;
using ::kronserve::client::testing::kBudget;
using ::kronserve::client::testing::kNoResults;
using ::kronserve::client::testing::MakeAnswer;
using ::kronserve::client::testing::StepCoreFixture;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class StepCoreTest : public StepCoreFixture {};

TEST_F(StepCoreTest, PushesThenEndsTheStepAndTakesTheAnswers) {
  Assign(1, {{"a"}, {"a"}});
  StepCore core = Core(Request(10, {0, 1}, /*factor_step=*/true));

  StepEffects effects = core.Begin(now_);
  ASSERT_THAT(effects.pushes, SizeIs(1));
  EXPECT_THAT(effects.preconditions, IsEmpty());
  const PushCall& push = effects.pushes[0].call;
  EXPECT_EQ(push.target.address, "a:1");
  EXPECT_EQ(push.target.timeout, kBudget / 2);
  EXPECT_EQ(push.header.call().epoch(), 1u);
  EXPECT_EQ(push.header.call().step(), 10);
  EXPECT_EQ(push.header.call().rank(), 3);
  EXPECT_EQ(push.header.damping(), 0.03);
  EXPECT_THAT(push.header.items(), SizeIs(2));
  EXPECT_THAT(push.tensors, SizeIs(2));

  effects = core.OnPushDone(effects.pushes[0].id, {}, kNoResults, now_);
  ASSERT_THAT(effects.preconditions, SizeIs(1));
  const uint64_t id = effects.preconditions[0].id;
  EXPECT_EQ(effects.preconditions[0].call.header.end(), v1::STEP_END_COMMIT);
  EXPECT_EQ(effects.preconditions[0].call.target.timeout,
            kBudget - absl::Milliseconds(100));

  core.OnLayer(id, MakeAnswer(1, 1, {7, 8}), now_);
  core.OnLayer(id, MakeAnswer(0, 0, {5, 6}), now_);
  EXPECT_FALSE(core.done()) << "the call has not ended";
  core.OnPreconditionDone(id, {}, now_);
  ASSERT_TRUE(core.done());
  const StepAnswer answer = core.TakeAnswer();
  ASSERT_THAT(answer.layers, SizeIs(2));
  EXPECT_THAT(*answer.layers[0].values, ElementsAre(5, 6));
  EXPECT_THAT(*answer.layers[1].values, ElementsAre(7, 8));
  EXPECT_THAT(answer.refused, IsEmpty());
}

TEST_F(StepCoreTest, CommitsToEveryOwnerAtAFactorStepOnly) {
  Assign(1, {{"a"}, {"b"}});
  StepCore factor_step = Core(Request(10, {}, /*factor_step=*/true));
  StepEffects effects = factor_step.Begin(now_);
  ASSERT_THAT(effects.preconditions, SizeIs(2));
  EXPECT_EQ(effects.preconditions[0].call.target.server, "a");
  EXPECT_EQ(effects.preconditions[1].call.target.server, "b");
  EXPECT_THAT(effects.preconditions[0].call.header.items(), IsEmpty());
  factor_step.OnPreconditionDone(effects.preconditions[0].id, {}, now_);
  EXPECT_FALSE(factor_step.done());
  factor_step.OnPreconditionDone(effects.preconditions[1].id, {}, now_);
  EXPECT_TRUE(factor_step.done());

  StepCore between = Core(Request(11, {}, /*factor_step=*/false));
  EXPECT_THAT(between.Begin(now_).preconditions, IsEmpty());
  EXPECT_TRUE(between.done());
}

TEST_F(StepCoreTest, VoidTravelsWithItsReason) {
  Assign(1, {{"a"}, {"a"}});
  StepRequest request = Request(10, {}, /*factor_step=*/true);
  request.void_reason = "overflow";
  StepCore core = Core(std::move(request));
  const StepEffects effects = core.Begin(now_);
  ASSERT_THAT(effects.preconditions, SizeIs(1));
  EXPECT_EQ(effects.preconditions[0].call.header.end(), v1::STEP_END_VOID);
  EXPECT_EQ(effects.preconditions[0].call.header.void_reason(), "overflow");
}

TEST_F(StepCoreTest, RetryIsTheSameMessageAfterABackoff) {
  Assign(1, {{"a"}, {"a"}});
  StepCore core = Core(Request(10, {0}, /*factor_step=*/true));
  StepEffects first = core.Begin(now_);
  ASSERT_THAT(first.pushes, SizeIs(1));

  StepEffects effects = core.OnPushDone(
      first.pushes[0].id, Ended(absl::UnavailableError("not known yet")),
      kNoResults, now_);
  EXPECT_THAT(effects.pushes, IsEmpty());
  EXPECT_GT(core.next_wake(), now_);
  EXPECT_LE(core.next_wake(), now_ + absl::Milliseconds(20));
  now_ = core.next_wake();
  effects = core.Tick(now_);
  ASSERT_THAT(effects.pushes, SizeIs(1));
  EXPECT_EQ(effects.pushes[0].call.header.SerializeAsString(),
            first.pushes[0].call.header.SerializeAsString());
  EXPECT_NE(effects.pushes[0].id, first.pushes[0].id);
  EXPECT_FALSE(suspects_.Contains("a"));

  // The same for the second half of the step.
  effects = core.OnPushDone(effects.pushes[0].id, {}, kNoResults, now_);
  ASSERT_THAT(effects.preconditions, SizeIs(1));
  const std::string header =
      effects.preconditions[0].call.header.SerializeAsString();
  core.OnPreconditionDone(effects.preconditions[0].id,
                          Ended(absl::ResourceExhaustedError("full")), now_);
  now_ = core.next_wake();
  effects = core.Tick(now_);
  ASSERT_THAT(effects.preconditions, SizeIs(1));
  EXPECT_EQ(effects.preconditions[0].call.header.SerializeAsString(), header);
  core.OnLayer(effects.preconditions[0].id, MakeAnswer(0, 0, {5, 6}), now_);
  core.OnPreconditionDone(effects.preconditions[0].id, {}, now_);
  ASSERT_TRUE(core.done());
  EXPECT_EQ(core.TakeAnswer().layers[0].reply.outcome(),
            v1::LAYER_OUTCOME_PRECONDITIONED);
}

TEST_F(StepCoreTest, RetryAsksOnlyForWhatIsMissing) {
  Assign(1, {{"a"}, {"a"}});
  StepCore core = Core(Request(11, {0, 1}, /*factor_step=*/false));
  StepEffects effects = core.Begin(now_);
  const uint64_t id = effects.preconditions[0].id;
  core.OnLayer(id, MakeAnswer(0, 0, {5, 6}), now_);
  core.OnPreconditionDone(id, Ended(absl::UnavailableError("reset")), now_);
  now_ = core.next_wake();
  effects = core.Tick(now_);
  ASSERT_THAT(effects.preconditions, SizeIs(1));
  ASSERT_THAT(effects.preconditions[0].call.header.items(), SizeIs(1));
  EXPECT_EQ(effects.preconditions[0].call.header.items(0).layer(), 1);
}

TEST_F(StepCoreTest, SilentServerCostsOneBudgetAndBecomesSuspect) {
  Assign(1, {{"a"}, {"b"}});
  StepCore core = Core(Request(11, {0, 1}, /*factor_step=*/false));
  const StepEffects effects = core.Begin(now_);
  ASSERT_THAT(effects.preconditions, SizeIs(2));
  const uint64_t b = effects.preconditions[1].id;
  core.OnLayer(b, MakeAnswer(0, 1, {5, 6}), now_);
  core.OnPreconditionDone(b, {}, now_);
  core.Tick(now_ + kBudget - absl::Milliseconds(1));
  EXPECT_FALSE(core.done());
  EXPECT_EQ(core.next_wake(), now_ + kBudget);

  core.Tick(now_ + kBudget);
  ASSERT_TRUE(core.done());
  const StepAnswer answer = core.TakeAnswer();
  EXPECT_EQ(answer.layers[0].reply.outcome(), v1::LAYER_OUTCOME_FALLBACK);
  EXPECT_EQ(answer.layers[0].reply.reason(), v1::FALLBACK_REASON_UNREACHABLE);
  EXPECT_THAT(answer.layers[0].reply.message(), HasSubstr("server 'a'"));
  EXPECT_THAT(answer.layers[0].reply.message(), HasSubstr("2s"));
  EXPECT_EQ(answer.layers[1].reply.outcome(), v1::LAYER_OUTCOME_PRECONDITIONED);
  EXPECT_TRUE(suspects_.Contains("a"));
  EXPECT_FALSE(suspects_.Contains("b"));
}

TEST_F(StepCoreTest, UnreachableServerIsRetriedThenSuspect) {
  Assign(1, {{"a"}, {"a"}});
  StepCore core = Core(Request(11, {0}, /*factor_step=*/false));
  StepEffects effects = core.Begin(now_);
  const absl::Time begin = now_;
  int calls = 0;
  while (!core.done()) {
    for (const auto& call : effects.preconditions) {
      ++calls;
      core.OnPreconditionDone(
          call.id, Ended(absl::UnavailableError("connection refused")), now_);
    }
    ASSERT_GT(core.next_wake(), now_);
    now_ = core.next_wake();
    effects = core.Tick(now_);
  }
  EXPECT_LE(now_, begin + kBudget);
  // At most 250 ms apart, at least 10 ms.
  EXPECT_GE(calls, 8);
  EXPECT_LE(calls, 30);
  EXPECT_TRUE(suspects_.Contains("a"));
  EXPECT_THAT(core.TakeAnswer().layers[0].reply.message(),
              HasSubstr("connection refused"));
}

TEST_F(StepCoreTest, SuspectsLayersFallBackAtOnceAndOneProbeIsNotWaitedFor) {
  Assign(1, {{"a"}, {"a"}});
  suspects_.Add("a", now_, "budget spent");
  StepCore without_probe = Core(Request(11, {0}, /*factor_step=*/false));
  EXPECT_THAT(without_probe.Begin(now_).preconditions, IsEmpty());
  ASSERT_TRUE(without_probe.done());
  EXPECT_EQ(without_probe.TakeAnswer().layers[0].reply.reason(),
            v1::FALLBACK_REASON_UNREACHABLE);

  now_ += kProbeInterval;
  StepCore with_probe = Core(Request(12, {0}, /*factor_step=*/false));
  const StepEffects effects = with_probe.Begin(now_);
  ASSERT_THAT(effects.preconditions, SizeIs(1));
  EXPECT_EQ(effects.preconditions[0].call.target.timeout, kProbeInterval);
  EXPECT_TRUE(with_probe.done());
  EXPECT_EQ(with_probe.TakeAnswer().layers[0].reply.outcome(),
            v1::LAYER_OUTCOME_FALLBACK);
  EXPECT_TRUE(suspects_.Contains("a"));

  // Its answer comes after the step has ended.
  with_probe.OnLayer(effects.preconditions[0].id, MakeAnswer(0, 0, {5, 6}),
                     now_ + absl::Milliseconds(300));
  EXPECT_FALSE(suspects_.IsSilent("a"));
  EXPECT_TRUE(suspects_.Contains("a")) << "the other ranks may not hear it";
}

// Only so does every rank come to hear it.
TEST_F(StepCoreTest, ARankWithoutLayersOfASuspectProbesItToo) {
  Assign(1, {{"a"}, {"b"}});
  suspects_.Add("b", now_, "another rank cannot hear it");
  now_ += kProbeInterval;
  StepCore core = Core(Request(11, {0}, /*factor_step=*/false));
  const StepEffects effects = core.Begin(now_);
  ASSERT_THAT(effects.preconditions, SizeIs(2));
  const auto& probe = effects.preconditions[1];
  EXPECT_EQ(probe.call.target.server, "b");
  EXPECT_THAT(probe.call.header.items(), IsEmpty());
  core.OnPreconditionDone(probe.id, {}, now_);
  EXPECT_FALSE(suspects_.IsSilent("b"));
  EXPECT_FALSE(core.done()) << "a is waited for";
}

TEST_F(StepCoreTest, FailedProbeKeepsTheSuspect) {
  Assign(1, {{"a"}, {"a"}});
  suspects_.Add("a", now_, "budget spent");
  now_ += kProbeInterval;
  StepCore core = Core(Request(12, {0}, /*factor_step=*/false));
  const StepEffects effects = core.Begin(now_);
  ASSERT_THAT(effects.preconditions, SizeIs(1));
  core.OnPreconditionDone(effects.preconditions[0].id,
                          Ended(absl::UnavailableError("refused")), now_);
  EXPECT_TRUE(suspects_.IsSilent("a"));
  EXPECT_TRUE(core.done());
}

TEST_F(StepCoreTest, PushGetsHalfTheBudgetThenTheStepGoesOn) {
  Assign(1, {{"a"}, {"a"}});
  StepCore core = Core(Request(10, {0}, /*factor_step=*/true));
  StepEffects effects = core.Begin(now_);
  const uint64_t push = effects.pushes[0].id;
  EXPECT_EQ(core.next_wake(), now_ + kBudget / 2);
  now_ += kBudget / 2;
  effects = core.Tick(now_);
  ASSERT_THAT(effects.preconditions, SizeIs(1));
  EXPECT_THAT(core.OnPushDone(push, {}, kNoResults, now_).preconditions,
              IsEmpty())
      << "the late end of the push started the call again";
  core.OnLayer(effects.preconditions[0].id, MakeAnswer(0, 0, {5, 6}), now_);
  core.OnPreconditionDone(effects.preconditions[0].id, {}, now_);
  ASSERT_TRUE(core.done());
  EXPECT_THAT(core.TakeAnswer().refused,
              ElementsAre(HasSubstr("1 factors did not reach server 'a'")));
}

TEST_F(StepCoreTest, RefusedContributionsAreNamed) {
  Assign(1, {{"a"}, {"a"}});
  StepCore core = Core(Request(10, {0}, /*factor_step=*/true));
  const StepEffects effects = core.Begin(now_);
  v1::PushFactorsResponse response;
  v1::ContributionResult* result = response.add_results();
  result->set_layer(0);
  result->set_kind(v1::FACTOR_KIND_INPUT);
  result->set_outcome(v1::CONTRIBUTION_OUTCOME_LATE);
  result->set_message("step 10 is closed");
  core.OnPushDone(effects.pushes[0].id, {}, response, now_);
  EXPECT_THAT(core.TakeAnswer().refused,
              ElementsAre(HasSubstr(
                  "layer 0, factor A, server 'a': step 10 is closed")));
}

TEST_F(StepCoreTest, LayerWithoutOwnerFallsBackAtOnce) {
  Assign(1, {{""}, {"a"}});
  StepCore core = Core(Request(11, {0}, /*factor_step=*/false));
  EXPECT_THAT(core.Begin(now_).preconditions, IsEmpty());
  ASSERT_TRUE(core.done());
  EXPECT_EQ(core.TakeAnswer().layers[0].reply.reason(),
            v1::FALLBACK_REASON_NO_OWNER);
}

TEST_F(StepCoreTest, ServersFallbackIsAnAnswer) {
  Assign(1, {{"a"}, {"a"}});
  StepCore core = Core(Request(11, {0}, /*factor_step=*/false));
  const StepEffects effects = core.Begin(now_);
  LayerAnswer answer;
  answer.reply.set_item(0);
  answer.reply.set_layer(0);
  answer.reply.set_outcome(v1::LAYER_OUTCOME_FALLBACK);
  answer.reply.set_reason(v1::FALLBACK_REASON_NOT_READY);
  core.OnLayer(effects.preconditions[0].id, answer, now_);
  core.OnPreconditionDone(effects.preconditions[0].id, {}, now_);
  ASSERT_TRUE(core.done());
  EXPECT_EQ(core.TakeAnswer().layers[0].reply.reason(),
            v1::FALLBACK_REASON_NOT_READY);
}

TEST_F(StepCoreTest, CallThatEndsWithoutAnAnswerFallsBack) {
  Assign(1, {{"a"}, {"a"}});
  StepCore core = Core(Request(11, {0}, /*factor_step=*/false));
  const StepEffects effects = core.Begin(now_);
  core.OnPreconditionDone(effects.preconditions[0].id, {}, now_);
  ASSERT_TRUE(core.done());
  EXPECT_THAT(core.TakeAnswer().layers[0].reply.message(),
              HasSubstr("without answering"));
}

TEST_F(StepCoreTest, AbandonedStepIsOverAndBlamesNobody) {
  Assign(1, {{"a"}, {"a"}});
  StepCore core = Core(Request(11, {0, 1}, /*factor_step=*/false));
  const StepEffects effects = core.Begin(now_);
  const uint64_t id = effects.preconditions[0].id;
  core.OnLayer(id, MakeAnswer(0, 0, {5, 6}), now_);
  core.Abandon(absl::AbortedError("world 1 was replaced"));
  ASSERT_TRUE(core.done());
  core.OnLayer(id, MakeAnswer(1, 1, {7, 8}), now_);  // Too late.
  const StepAnswer answer = core.TakeAnswer();
  EXPECT_EQ(answer.layers[0].reply.outcome(), v1::LAYER_OUTCOME_PRECONDITIONED);
  EXPECT_THAT(answer.layers[1].reply.message(), HasSubstr("was replaced"));
  EXPECT_FALSE(suspects_.Contains("a"));
}

TEST_F(StepCoreTest, AnswersThatDoNotFitAreNotApplied) {
  Assign(1, {{"a"}, {"a"}});
  StepCore core = Core(Request(11, {0}, /*factor_step=*/false));
  const StepEffects effects = core.Begin(now_);
  const uint64_t id = effects.preconditions[0].id;
  core.OnLayer(id + 100, MakeAnswer(0, 0, {1, 1}), now_);  // Unknown call.
  core.OnLayer(id, MakeAnswer(7, 0, {1, 1}), now_);        // Unknown item.
  core.OnLayer(id, MakeAnswer(0, 1, {1, 1}), now_);        // Another layer.
  core.OnLayer(id, MakeAnswer(0, 0, {1, 1, 1}), now_);     // Another size.
  core.OnLayer(id, MakeAnswer(0, 0, {1, 1}), now_);        // Twice.
  core.OnPreconditionDone(id, {}, now_);
  ASSERT_TRUE(core.done());
  EXPECT_EQ(core.TakeAnswer().layers[0].reply.reason(),
            v1::FALLBACK_REASON_BAD_RESULT);
}

}  // namespace
}  // namespace kronserve::client
