#include "server/layer_snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "checkpoint/snapshot_check.h"
#include "common/testing/status_matchers.h"
#include "server/testing/core_driver.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::SampleLayer;
using ::kronserve::testing::StatusIs;
using testing::CoreDriver;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MakeFactors;
using testing::MakeJob;
using testing::MakeTensor;
using testing::Place;
using ::testing::SizeIs;
using testing::SyncOptions;

// A [2, 2], G [1, 1].
const v1::LayerSpec kLayer = SampleLayer("fc1", 1, 2);

// The state of a layer after one round with A = 4 I, G = 1, damping 0.
LayerContents ContentsAfterOneRound(const v1::JobOptions& options) {
  CoreDriver driver;
  v1::ConfigureJobRequest job = MakeJob({kLayer}, 1, options);
  EXPECT_THAT(driver.Configure(job), IsOk());
  EXPECT_THAT(driver.Push(0, 0, MakeFactors(0, kLayer, 4, 1, 4)), IsOk());
  EXPECT_THAT(driver.Commit(0, 0), IsOk());
  Place(&job, 0, "s1", 1, testing::kServerName);
  EXPECT_THAT(driver.Configure(job), IsOk());
  driver.SeeProgress(1);
  const auto sent = driver.executor.TakeTransfers();
  EXPECT_THAT(sent, SizeIs(1));
  return sent[0].contents;
}

v1::JobOptions EigenOptions() {
  v1::JobOptions options = SyncOptions();
  options.set_method(v1::COMPUTE_METHOD_EIGEN);
  options.set_damping_form(v1::DAMPING_FORM_EXACT);
  return options;
}

TEST(LayerSnapshot, HoldsAllOfALayer) {
  const LayerImage image = PackLayer(ContentsAfterOneRound(SyncOptions()));
  EXPECT_EQ(image.meta.job(), "job");
  EXPECT_EQ(image.meta.run_id(), "run");
  EXPECT_EQ(image.meta.layer().name(), "fc1");
  EXPECT_EQ(image.meta.epoch(), 2u);
  EXPECT_EQ(image.meta.closed_through(), 0);
  EXPECT_EQ(image.meta.updates(), 1);
  EXPECT_EQ(image.meta.published().version(), 1);
  EXPECT_EQ(image.meta.closed_size(), 2);
  ASSERT_THAT(image.tensors, SizeIs(4));
  EXPECT_THAT(*image.tensors[0], ElementsAre(4, 0, 4));
  EXPECT_THAT(*image.tensors[1], ElementsAre(1));
  // The lower Cholesky factor of 4 I is 2 I.
  EXPECT_THAT(*image.tensors[2], ElementsAre(2, 0, 0, 2));
  EXPECT_THAT(*image.tensors[3], ElementsAre(1));
}

TEST(LayerSnapshot, ChecksumsAreForThoseWhoSend) {
  const LayerContents contents = ContentsAfterOneRound(SyncOptions());
  LayerImage sent = PackLayer(contents);
  const LayerImage written = ShareLayer(contents);
  EXPECT_EQ(sent.tensors, written.tensors);  // The same objects.
  for (int i = 0; i < 4; ++i) {
    v1::SnapshotTensor* tensor = sent.meta.mutable_tensors(i);
    EXPECT_EQ(tensor->checksum(), testing::ChecksumOf(sent.tensors[i]));
    tensor->clear_checksum();
  }
  EXPECT_EQ(sent.meta.SerializeAsString(), written.meta.SerializeAsString());
}

TEST(LayerSnapshot, ComesBackAsItWas) {
  const v1::JobOptions options = EigenOptions();
  const LayerContents before = ContentsAfterOneRound(options);
  const auto after = UnpackLayer(PackLayer(before), kLayer, options);
  ASSERT_THAT(after, IsOk());
  EXPECT_EQ(after->meta.SerializeAsString(), before.meta.SerializeAsString());
  EXPECT_EQ(*after->averages.a, *before.averages.a);
  EXPECT_EQ(*after->averages.g, *before.averages.g);
  const auto& was = before.published->factorization;
  const auto& is = after->published->factorization;
  EXPECT_EQ(is.a.values, was.a.values);
  EXPECT_EQ(is.g.values, was.g.values);
  EXPECT_EQ(is.values_a, was.values_a);
  EXPECT_EQ(is.values_g, was.values_g);
  EXPECT_EQ(is.method, curvature::Method::kEigen);
  EXPECT_EQ(is.form, curvature::DampingForm::kExact);
  EXPECT_EQ(is.rung, was.rung);
  EXPECT_EQ(is.split.pi, was.split.pi);
  EXPECT_EQ(after->published->version, 1);
}

TEST(LayerSnapshot, LayerWithoutFactorsHasNoTensors) {
  LayerContents empty;
  *empty.meta.mutable_layer() = kLayer;
  *empty.meta.mutable_options() = checkpoint::StateOptions(SyncOptions());
  empty.meta.set_closed_through(10);
  const LayerImage image = PackLayer(empty);
  EXPECT_THAT(image.tensors, SizeIs(0));
  const auto back = UnpackLayer(image, kLayer, SyncOptions());
  ASSERT_THAT(back, IsOk());
  EXPECT_EQ(back->published, nullptr);
}

TEST(LayerSnapshot, OptionsThatTheStateDoesNotDependOnMayDiffer) {
  const LayerImage image = PackLayer(ContentsAfterOneRound(SyncOptions()));
  v1::JobOptions options = SyncOptions();
  options.set_step_budget_ms(5);
  options.set_round_policy(v1::ROUND_POLICY_PARTIAL);
  EXPECT_THAT(UnpackLayer(image, kLayer, options), IsOk());
}

TEST(LayerSnapshot, AnotherLayerOrMethodDoesNotFit) {
  const LayerImage image = PackLayer(ContentsAfterOneRound(SyncOptions()));
  constexpr auto kDiffers = absl::StatusCode::kFailedPrecondition;
  EXPECT_THAT(UnpackLayer(image, SampleLayer("fc1", 1, 3), SyncOptions()),
              StatusIs(kDiffers, HasSubstr("[1, 3]")));
  EXPECT_THAT(UnpackLayer(image, SampleLayer("fc2", 1, 2), SyncOptions()),
              StatusIs(kDiffers, HasSubstr("fc2")));
  EXPECT_THAT(UnpackLayer(image, kLayer, EigenOptions()),
              StatusIs(kDiffers, HasSubstr("method")));
}

// What a peer or a file may get wrong, and what the refusal names.
struct Fault {
  std::string name;
  std::function<void(LayerImage*)> make;
  std::string message;
};

class SnapshotFaults : public ::testing::TestWithParam<Fault> {};

TEST_P(SnapshotFaults, AreRefusedByName) {
  LayerImage image = PackLayer(ContentsAfterOneRound(SyncOptions()));
  GetParam().make(&image);
  EXPECT_THAT(UnpackLayer(image, kLayer, SyncOptions()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(GetParam().message)));
}

constexpr int64_t kNewest = std::numeric_limits<int64_t>::max();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

INSTANTIATE_TEST_SUITE_P(
    All, SnapshotFaults,
    ::testing::Values(
        Fault{"FlippedBit",
              [](LayerImage* image) {
                image->tensors[2] = MakeTensor({2, 0, 0, 3});
              },
              "checksum"},
        Fault{"TooShort",
              [](LayerImage* image) {
                image->tensors[0] = MakeTensor({4, 0});
              },
              "size"},
        Fault{"TensorMissing",
              [](LayerImage* image) { image->tensors.pop_back(); },
              "3 tensors came"},
        Fault{"NullTensor",
              [](LayerImage* image) { image->tensors[1] = nullptr; }, "size"},
        Fault{"NotFinite",
              [](LayerImage* image) {
                image->tensors[1] = MakeTensor({kNan});
                image->meta.mutable_tensors(1)->set_checksum(
                    testing::ChecksumOf(image->tensors[1]));
              },
              "NaN"},
        Fault{"WrongElements",
              [](LayerImage* image) {
                image->meta.mutable_tensors(0)->set_elements(int64_t{1} << 62);
              },
              "expected role 1 and 3"},
        Fault{"TensorNotListed",
              [](LayerImage* image) {
                image->meta.mutable_tensors()->RemoveLast();
              },
              "expected 4"},
        Fault{"NoRounds", [](LayerImage* image) { image->meta.set_updates(0); },
              "version 1 is published, 0"},
        Fault{"Damping", [](LayerImage* image) { image->meta.set_damping(-1); },
              "damping is -1"},
        Fault{"Pi",
              [](LayerImage* image) {
                image->meta.mutable_published()->set_pi(0);
              },
              "pi 0"},
        Fault{"Rung",
              [](LayerImage* image) {
                image->meta.mutable_published()->set_rung(9);
              },
              "rung 9"},
        Fault{"Method",
              [](LayerImage* image) {
                image->meta.mutable_published()->set_method(
                    v1::COMPUTE_METHOD_EIGEN);
              },
              "method"},
        Fault{"Steps",
              [](LayerImage* image) { image->meta.set_first_step(-1); },
              "from step -1"},
        Fault{"FirstStep",
              [](LayerImage* image) { image->meta.set_first_step(kNewest); },
              "from step 9223372036854775807"},
        Fault{"FactorStep",
              [](LayerImage* image) { image->meta.set_factor_step(kNewest); },
              "to 9223372036854775807"},
        Fault{
            "ClosedThrough",
            [](LayerImage* image) { image->meta.set_closed_through(kNewest); },
            "closed through 9223372036854775807"},
        Fault{"Updates",
              [](LayerImage* image) { image->meta.set_updates(kNewest); },
              "9223372036854775807 merged rounds"},
        Fault{"FailedFor",
              [](LayerImage* image) { image->meta.set_failed_for(kNewest); },
              "step 9223372036854775807 failed"},
        Fault{"FailedBefore",
              [](LayerImage* image) { image->meta.set_failed_for(-2); },
              "step -2 failed"},
        Fault{"PublishedFor",
              [](LayerImage* image) {
                image->meta.mutable_published()->set_published_for(kNewest);
              },
              "for step 9223372036854775807"},
        Fault{"PublishedOf",
              [](LayerImage* image) {
                image->meta.mutable_published()->set_factor_step(-1);
              },
              "is of step -1"},
        Fault{"ClosedLater",
              [](LayerImage* image) { image->meta.set_closed_through(-1); },
              "closed contribution"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kronserve::server
