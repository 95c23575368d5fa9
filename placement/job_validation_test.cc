#include "placement/job_validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "proto/testing/sample_job.h"

namespace kronserve::placement {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::SampleLayer;
using ::kronserve::testing::SampleOptions;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Layers TwoLayers() {
  Layers layers;
  *layers.Add() = SampleLayer("fc1", 10, 20);
  *layers.Add() = SampleLayer("fc2", 5, 10);
  return layers;
}

TEST(ValidateJobTest, AcceptsAGoodJob) {
  EXPECT_THAT(ValidateJob(TwoLayers(), SampleOptions()), IsOk());
}

TEST(ValidateJobTest, WithoutLayersOptionsDoNotMatter) {
  EXPECT_THAT(ValidateJob(Layers(), v1::JobOptions()), IsOk());
}

struct BadLayer {
  const char* message;
  std::function<void(v1::LayerSpec*)> spoil;
};

TEST(ValidateJobTest, NamesEachFaultOfALayer) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const BadLayer kCases[] = {
      {"layer 1 (''): the name has 0 bytes", [](auto* l) { l->set_name(""); }},
      {"the name has 257 bytes",
       [](auto* l) { l->set_name(std::string(257, 'x')); }},
      {"the name 'fc1' is taken", [](auto* l) { l->set_name("fc1"); }},
      {"layer 1 ('fc2'): kind 0 is not known",
       [](auto* l) { l->set_kind(v1::LAYER_KIND_UNSPECIFIED); }},
      {"d_out is 0, allowed are 1 to 2147483647",
       [](auto* l) { l->set_d_out(0); }},
      {"d_in is -3", [](auto* l) { l->set_d_in(-3); }},
      {"d_in is 2147483648", [](auto* l) { l->set_d_in(int64_t{1} << 31); }},
      {"d_in 1 counts the bias column",
       [](auto* l) { l->set_has_bias(true), l->set_d_in(1); }},
      {"scale_a is 0", [](auto* l) { l->set_scale_a(0); }},
      {"scale_g is nan", [nan](auto* l) { l->set_scale_g(nan); }},
  };
  for (const BadLayer& bad : kCases) {
    Layers layers = TwoLayers();
    bad.spoil(layers.Mutable(1));
    EXPECT_THAT(
        ValidateJob(layers, SampleOptions()),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(bad.message)));
  }
}

struct BadOption {
  const char* message;
  std::function<void(v1::JobOptions*)> spoil;
};

TEST(ValidateJobTest, NamesEachFaultOfTheOptions) {
  const BadOption kCases[] = {
      {"method is 0: it must be set", [](auto* o) { o->clear_method(); }},
      {"damping_form is 0", [](auto* o) { o->clear_damping_form(); }},
      {"factor_init is 0", [](auto* o) { o->clear_factor_init(); }},
      {"factor_source is 0", [](auto* o) { o->clear_factor_source(); }},
      {"refresh_schedule is 0", [](auto* o) { o->clear_refresh_schedule(); }},
      {"round_policy is 0", [](auto* o) { o->clear_round_policy(); }},
      {"fallback is 77: it is not known",
       [](auto* o) { o->set_fallback(static_cast<v1::FallbackKind>(77)); }},
      {"factor_update_steps is 0",
       [](auto* o) { o->set_factor_update_steps(0); }},
      {"inv_update_steps is -1", [](auto* o) { o->set_inv_update_steps(-1); }},
      {"max_staleness must be set", [](auto* o) { o->clear_max_staleness(); }},
      {"max_staleness is -1", [](auto* o) { o->set_max_staleness(-1); }},
      {"min_round_share is 0", [](auto* o) { o->set_min_round_share(0); }},
      {"min_round_share is 1.5", [](auto* o) { o->set_min_round_share(1.5); }},
      {"step_budget_ms is 0", [](auto* o) { o->set_step_budget_ms(0); }},
      {"round_deadline_ms is 0", [](auto* o) { o->set_round_deadline_ms(0); }},
      {"round_deadline_ms is 1001, at most half of step_budget_ms 2000",
       [](auto* o) { o->set_round_deadline_ms(1001); }},
      {"max_open_rounds is 0", [](auto* o) { o->set_max_open_rounds(0); }},
      {"damping_form exact is not a Kronecker product",
       [](auto* o) { o->set_damping_form(v1::DAMPING_FORM_EXACT); }},
      {"max_staleness 0 is synchronous and needs round_policy wait",
       [](auto* o) { o->set_max_staleness(0); }},
      {"deterministic must be set", [](auto* o) { o->clear_deterministic(); }},
      {"deterministic needs max_staleness 0 and round_policy wait",
       [](auto* o) { o->set_deterministic(true); }},
  };
  for (const BadOption& bad : kCases) {
    v1::JobOptions options = SampleOptions();
    bad.spoil(&options);
    EXPECT_THAT(
        ValidateJob(TwoLayers(), options),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(bad.message)));
  }
}

TEST(ValidateJobTest, AcceptsExactDampingWithEigenAndDeterministicRuns) {
  v1::JobOptions options = SampleOptions();
  options.set_method(v1::COMPUTE_METHOD_EIGEN);
  options.set_damping_form(v1::DAMPING_FORM_EXACT);
  options.set_max_staleness(0);
  options.set_round_policy(v1::ROUND_POLICY_WAIT);
  options.set_deterministic(true);
  EXPECT_THAT(ValidateJob(TwoLayers(), options), IsOk());
}

TEST(ValidateJobTest, NamesAllFaultsAtOnce) {
  Layers layers = TwoLayers();
  layers.Mutable(0)->set_d_in(0);
  v1::JobOptions options = SampleOptions();
  options.set_max_open_rounds(0);
  options.clear_method();
  EXPECT_THAT(ValidateJob(layers, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("d_in is 0"), HasSubstr("max_open"),
                             HasSubstr("method is 0"))));
}

TEST(ValidateJobTest, CutsALongListOfFaults) {
  Layers layers;
  for (int i = 0; i < 30; ++i)
    *layers.Add() = SampleLayer(absl::StrCat(i), 0, 1);
  EXPECT_THAT(ValidateJob(layers, SampleOptions()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("layer 19"), Not(HasSubstr("layer 20")),
                             HasSubstr("and 10 more"))));
}

TEST(DescribeDifferenceTest, NamesWhatDiffers) {
  const Layers layers = TwoLayers();
  const v1::JobOptions options = SampleOptions();
  EXPECT_EQ(DescribeDifference(layers, options, layers, options), "");

  Layers wider = layers;
  wider.Mutable(0)->set_d_in(30);
  EXPECT_THAT(DescribeDifference(wider, options, layers, options),
              AllOf(HasSubstr("layer 'fc1'"), HasSubstr("[10, 30]"),
                    HasSubstr("was"), HasSubstr("[10, 20]")));
  Layers renamed = layers;
  renamed.Mutable(1)->set_name("head");
  EXPECT_EQ(DescribeDifference(renamed, options, layers, options),
            "layer 1 is 'head', was 'fc2'");
  Layers fewer = layers;
  fewer.RemoveLast();
  EXPECT_EQ(DescribeDifference(fewer, options, layers, options),
            "1 layers, was 2");
  v1::JobOptions slower = options;
  slower.set_inv_update_steps(20);
  EXPECT_THAT(
      DescribeDifference(layers, slower, layers, options),
      AllOf(HasSubstr("inv_update_steps"), HasSubstr("10"), HasSubstr("20")));
}

TEST(PlanHashTest, DependsOnLayersOptionsAndWorldSize) {
  const uint64_t hash = PlanHash(TwoLayers(), SampleOptions(), 2);
  EXPECT_EQ(hash, PlanHash(TwoLayers(), SampleOptions(), 2));
  EXPECT_NE(hash, PlanHash(TwoLayers(), SampleOptions(), 3));
  v1::JobOptions options = SampleOptions();
  options.set_inv_update_steps(11);
  EXPECT_NE(hash, PlanHash(TwoLayers(), options, 2));
  Layers layers = TwoLayers();
  layers.Mutable(0)->set_scale_a(2);
  EXPECT_NE(hash, PlanHash(layers, SampleOptions(), 2));
}

}  // namespace
}  // namespace kronserve::placement
