// One rank's session: what it sends, and what becomes of the gradients.
// session_agreement_test.cc has several ranks.

#include "worker/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "worker/testing/fake_job.h"

namespace kronserve::worker {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::kronserve::worker::testing::FakeJob;
using ::kronserve::worker::testing::Recorder;
using ::testing::_;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// "fc" [1, 2] with bias on server a, "out" [2, 1] on server b.
std::vector<curvature::LayerShape> TwoLayers() {
  return {{"fc", 1, 2, true}, {"out", 2, 1, false}};
}

StepSettings NoClip() {
  StepSettings settings;
  settings.kl_clip = std::nullopt;
  return settings;
}

struct Gradients {
  std::vector<float> fc = {1, 2};
  std::vector<float> out = {3, 4};
  std::vector<linalg::MatrixView<float>> views() {
    return {{fc.data(), 1, 2}, {out.data(), 2, 1}};
  }
};

TEST(Session, WritesVAndReportsEveryLayer) {
  FakeJob job(TwoLayers(), {"n0"});
  job.servers().precondition = [](const client::PreconditionCall& call,
                                  std::vector<client::LayerAnswer>* answers) {
    std::vector<float> v = *call.tensors[0];
    for (float& value : v) value *= 2;
    answers->push_back(client::testing::MakeAnswer(
        0, call.header.items(0).layer(), std::move(v)));
    answers->back().reply.set_version(7);
    answers->back().reply.set_age(3);
    return client::CallEnd();
  };
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto session, job.Join(0));
  EXPECT_EQ(session->start_step(), 0);
  EXPECT_EQ(session->plan_hash(), 99u);
  EXPECT_EQ(session->job_group().size(), 1);

  Gradients gradients;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const StepResult result,
                                 session->Step(0, NoClip(), gradients.views()));
  EXPECT_THAT(gradients.fc, ElementsAre(2, 4));
  EXPECT_THAT(gradients.out, ElementsAre(6, 8));
  EXPECT_FALSE(result.voided);
  EXPECT_EQ(result.fallbacks, 0);
  EXPECT_EQ(result.epoch, 1u);
  ASSERT_THAT(result.layers, SizeIs(2));
  EXPECT_TRUE(result.layers[1].preconditioned);
  EXPECT_EQ(result.layers[1].version, 7);
  EXPECT_EQ(result.layers[1].age, 3);
  EXPECT_EQ(result.layers[1].rung, v1::REFRESH_RUNG_DIRECT);
}

TEST(Session, SendsSumsAtFactorStepsAndGradientsAlways) {
  FakeJob job(TwoLayers(), {"n0"});
  job.job_options().set_factor_update_steps(2);
  Recorder recorder;
  job.servers() = recorder.Servers();
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto session, job.Join(0));

  EXPECT_TRUE(session->NeedsStatistics(0, 0));
  EXPECT_FALSE(session->NeedsStatistics(1, 0));
  EXPECT_FALSE(session->NeedsStatistics(0, 2));
  const float inputs[] = {2, 3};
  const float hooks[] = {0.5f, 1.5f};
  ASSERT_THAT(session->AccumulateLinear(0, {inputs, 2, 1}, {hooks, 2, 1}, 2),
              IsOk());
  Gradients gradients;
  StepSettings settings = NoClip();
  settings.damping = 0.5;
  settings.factor_decay = 0.75;
  ASSERT_THAT(session->Step(0, settings, gradients.views()), IsOk());

  const auto pushes = recorder.pushes();
  ASSERT_THAT(pushes, SizeIs(2));
  const client::PushCall& fc = pushes[0];
  EXPECT_EQ(fc.target.server, "a");
  EXPECT_EQ(fc.header.damping(), 0.5);
  EXPECT_EQ(fc.header.factor_decay(), 0.75);
  ASSERT_THAT(fc.header.items(), SizeIs(2));
  EXPECT_EQ(fc.header.items(0).kind(), v1::FACTOR_KIND_INPUT);
  EXPECT_EQ(fc.header.items(0).dim(), 2);
  EXPECT_EQ(fc.header.items(0).loss_rows(), 2);
  EXPECT_EQ(fc.header.items(0).rows(), 2);
  EXPECT_THAT(*fc.tensors[0], ElementsAre(13, 5, 2));
  EXPECT_EQ(fc.header.items(1).kind(), v1::FACTOR_KIND_OUTPUT);
  EXPECT_THAT(*fc.tensors[1], ElementsAre(10));
  const client::PushCall& out = pushes[1];
  EXPECT_EQ(out.header.items(0).body(), v1::CONTRIBUTION_BODY_EMPTY_UNUSED);
  EXPECT_EQ(out.tensors[0], nullptr);

  // Between factor steps: statistics are not taken, gradients are sent.
  ASSERT_THAT(session->AccumulateLinear(0, {inputs, 2, 1}, {hooks, 2, 1}, 2),
              IsOk());
  ASSERT_THAT(session->Step(1, settings, gradients.views()), IsOk());
  EXPECT_THAT(recorder.pushes(), SizeIs(2));
  EXPECT_THAT(recorder.ends(), SizeIs(4));
  ASSERT_THAT(session->Step(2, settings, gradients.views()), IsOk());
  EXPECT_EQ(recorder.pushes()[2].header.items(0).body(),
            v1::CONTRIBUTION_BODY_EMPTY_UNUSED);
}

// PROTOCOL.md 7: <V1, D1> = 3, layer 2 falls back with r = 0.5 and
// <D2, D2> = 2, lr 0.1, kl_clip 1e-3.
TEST(Session, ClipsOverTheWholeModelWithTheFallbackInIt) {
  FakeJob job({{"one", 1, 2, false}, {"two", 1, 2, false}}, {"n0"});
  bool second_falls_back = false;
  job.servers().precondition = [&](const client::PreconditionCall& call,
                                   std::vector<client::LayerAnswer>* answers) {
    const int layer = call.header.items(0).layer();
    client::LayerAnswer answer =
        layer == 0 ? client::testing::MakeAnswer(0, 0, {1, 2})
                   : client::testing::MakeAnswer(0, 1, {1.5, 2});
    answer.reply.set_inner_product(3);
    if (layer == 1 && second_falls_back) {
      answer.reply.set_outcome(v1::LAYER_OUTCOME_FALLBACK);
      answer.reply.set_reason(v1::FALLBACK_REASON_NOT_READY);
      answer.reply.set_message("inverse of step 3 is not ready");
    }
    answers->push_back(answer);
    return client::CallEnd();
  };
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto session, job.Join(0));
  std::vector<float> one = {1, 1};
  std::vector<float> two = {3, 4};  // |V2| / |D2| = 2.5 / 5.
  const std::vector<linalg::MatrixView<float>> views = {{one.data(), 1, 2},
                                                        {two.data(), 1, 2}};
  ASSERT_THAT(session->Step(0, NoClip(), views), IsOk());

  second_falls_back = true;
  one = {1, 1};
  two = {1, 1};
  StepSettings settings;
  settings.lr = 0.1;
  settings.kl_clip = 1e-3;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const StepResult result,
                                 session->Step(1, settings, views));
  EXPECT_NEAR(result.nu, 0.158114, 5e-7);
  EXPECT_NEAR(one[1], 0.316228, 1e-6);
  EXPECT_NEAR(two[0], 0.079057, 1e-6);
  EXPECT_EQ(result.fallbacks, 1);
  EXPECT_EQ(result.layers[1].reason, v1::FALLBACK_REASON_NOT_READY);
  EXPECT_THAT(result.layers[1].message, HasSubstr("step 3"));
}

TEST(Session, VoidStepLeavesGradientsAndSendsOnlyTheVoid) {
  FakeJob job(TwoLayers(), {"n0"});
  Recorder recorder;
  job.servers() = recorder.Servers();
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto session, job.Join(0));
  const float one[] = {1, 1};
  ASSERT_THAT(session->AccumulateLinear(1, {one, 1, 1}, {one, 1, 2}, 1),
              IsOk());
  Gradients gradients;
  StepSettings settings;
  settings.void_reason = "overflow";
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const StepResult result,
                                 session->Step(0, settings, gradients.views()));
  EXPECT_TRUE(result.voided);
  EXPECT_EQ(result.fallbacks, 2);
  EXPECT_EQ(result.layers[0].reason, v1::FALLBACK_REASON_VOID);
  EXPECT_THAT(gradients.fc, ElementsAre(1, 2));
  EXPECT_THAT(gradients.out, ElementsAre(3, 4));
  EXPECT_THAT(recorder.pushes(), IsEmpty());
  ASSERT_THAT(recorder.ends(), SizeIs(2));
  for (const client::PreconditionCall& end : recorder.ends()) {
    EXPECT_EQ(end.header.end(), v1::STEP_END_VOID);
    EXPECT_EQ(end.header.void_reason(), "overflow");
    EXPECT_THAT(end.header.items(), IsEmpty());
  }
  ASSERT_THAT(session->Step(1, NoClip(), gradients.views()), IsOk());
}

TEST(Session, WithoutLayersItOnlyCountsSteps) {
  FakeJob job({}, {"n0"});
  Recorder recorder;
  job.servers() = recorder.Servers();
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto session, job.Join(0));
  for (int step = 0; step < 3; ++step) {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(const StepResult result,
                                   session->Step(step, NoClip(), {}));
    EXPECT_EQ(result.nu, 1);
  }
  EXPECT_THAT(recorder.ends(), IsEmpty());
}

TEST(Session, WrongArgumentsSendNothing) {
  FakeJob job(TwoLayers(), {"n0"});
  Recorder recorder;
  job.servers() = recorder.Servers();
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto session, job.Join(0));
  Gradients gradients;
  EXPECT_THAT(session->Step(1, NoClip(), gradients.views()),
              StatusIs(kInvalid, HasSubstr("step is 1, expected 0")));
  auto views = gradients.views();
  views.pop_back();
  EXPECT_THAT(session->Step(0, NoClip(), views),
              StatusIs(kInvalid, HasSubstr("1 gradients for 2 layers")));
  views = gradients.views();
  views[1].rows = 1;
  StepSettings settings;
  settings.damping = -1;
  settings.factor_decay = 1;
  settings.kl_clip = 0;
  settings.lr = std::numeric_limits<double>::infinity();
  EXPECT_THAT(
      session->Step(0, settings, views),
      StatusIs(kInvalid,
               AllOf(HasSubstr("damping is -1"), HasSubstr("factor_decay is 1"),
                     HasSubstr("kl_clip is 0"), HasSubstr("lr is inf"),
                     HasSubstr("layer 'out': gradient is [1, 1], registered "
                               "[2, 1]"))));
  const float one[] = {1, 1};
  EXPECT_THAT(session->AccumulateLinear(5, {one, 1, 1}, {one, 1, 2}, 1),
              StatusIs(kInvalid, HasSubstr("layer 5")));
  EXPECT_THAT(session->AccumulateConv(5, {}, {one, 1, 1}, {one, 1, 2}, 1),
              StatusIs(kInvalid, HasSubstr("layer 5")));
  EXPECT_THAT(recorder.ends(), IsEmpty());
  EXPECT_THAT(session->Step(0, NoClip(), gradients.views()), IsOk());
}

TEST(Session, JoinNamesEveryFault) {
  SessionOptions options;
  options.scheduler = "nowhere";
  options.rank = 3;
  options.world_size = 2;
  options.job_options = DefaultJobOptions();
  options.job_options.set_min_round_share(2);
  LoopbackHub hub;
  EXPECT_THAT(
      Session::Join(options, {{"fc", 0, 2, true}}, hub.Factory()),
      StatusIs(kInvalid,
               AllOf(HasSubstr("'nowhere' is not host:port"),
                     HasSubstr("the job has no name"), HasSubstr("rank is 3"),
                     HasSubstr("min_round_share"), HasSubstr("fc"))));
}

TEST(Session, JoinRefusesADeviceThatIsNotThere) {
  FakeJob job(TwoLayers(), {"n0"});
  SessionOptions options = job.Options(0);
  options.device = "tpu";
  EXPECT_THAT(Session::Join(options, TwoLayers(), job.hub().Factory()),
              StatusIs(kInvalid, HasSubstr("tpu")));
}

TEST(Session, JoinHandsOnWhatTheSchedulerSays) {
  FakeJob job(TwoLayers(), {"n0"});
  job.scheduler(0).set_joins(
      {absl::AlreadyExistsError("job 'job' has other layers")});
  EXPECT_THAT(job.Join(0), StatusIs(absl::StatusCode::kAlreadyExists,
                                    HasSubstr("other layers")));
  job.scheduler(0).set_joins({absl::ResourceExhaustedError("needs 9 bytes")});
  EXPECT_THAT(job.Join(0), StatusIs(absl::StatusCode::kResourceExhausted, _));
}

TEST(Session, JoinWithoutASchedulerIsUnavailable) {
  FakeJob job(TwoLayers(), {"n0"});
  SessionOptions options = job.Options(0);
  options.scheduler = "127.0.0.1:1";  // Nobody may listen below 1024 here.
  options.join_timeout = absl::Milliseconds(100);
  EXPECT_THAT(Session::Join(options, TwoLayers(), job.hub().Factory()),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("scheduler at 127.0.0.1:1")));
}

TEST(Session, FinishEndsTheJobOnce) {
  FakeJob job(TwoLayers(), {"n0"});
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto session, job.Join(0));
  EXPECT_THAT(session->Finish(), IsOk());
  EXPECT_THAT(session->Finish(), IsOk());
}

TEST(Session, SynchronousOptionsAreDefaultOnesThatWait) {
  const v1::JobOptions options = SynchronousJobOptions();
  EXPECT_EQ(options.max_staleness(), 0);
  EXPECT_EQ(options.round_policy(), v1::ROUND_POLICY_WAIT);
  EXPECT_EQ(options.refresh_schedule(), v1::REFRESH_SCHEDULE_ALIGNED);
  FakeJob job(TwoLayers(), {"n0"});
  job.job_options() = options;
  EXPECT_THAT(job.Join(0), IsOk());
}

}  // namespace
}  // namespace kronserve::worker
