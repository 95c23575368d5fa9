#include "client/cli/verify_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "common/testing/status_matchers.h"

namespace kronserve::client {
namespace {

using checkpoint::VerifiedSet;
using checkpoint::VerifyReport;
using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

VerifiedSet Set(const std::string& name, VerifiedSet::State state) {
  VerifiedSet set;
  set.job = "mnist";
  set.name = name;
  set.layers = 3;
  set.step = 1041;
  set.files = 3;
  set.bytes = int64_t{5} << 20;
  set.state = state;
  return set;
}

VerifyReport Mixed() {
  VerifyReport report;
  report.sets.push_back(Set("run-1", VerifiedSet::State::kDamaged));
  report.sets[0].background = true;
  report.sets[0].layers_lost = 1;
  report.sets.push_back(Set("c1", VerifiedSet::State::kGood));
  report.sets.push_back(Set("c2", VerifiedSet::State::kIncomplete));
  report.sets[2].step = -1;
  report.faults = {"checkpoint file '/d/x.kron': magic: no\033[2J"};
  return report;
}

TEST(RenderVerifyTextTest, ShowsEveryCheckpointAndEveryFault) {
  const std::string text = RenderVerifyText(Mixed(), "/d", /*colors=*/false);
  EXPECT_THAT(text, ContainsRegex("JOB +CHECKPOINT +LAYERS +STEP +FILES +BYTES "
                                  "+STATE\n"));
  EXPECT_THAT(text, ContainsRegex("mnist +background of run-1 +3 .1 lost. "
                                  "+1041 +3 +5.0 MiB +damaged\n"));
  EXPECT_THAT(text, ContainsRegex("mnist +c1 +3 +1041 +3 +5.0 MiB +good\n"));
  EXPECT_THAT(text, ContainsRegex("mnist +c2 +3 +- +3 +5.0 MiB +incomplete"));
  EXPECT_THAT(text, HasSubstr("'/d/x.kron': magic: no?[2J\n"));
  EXPECT_THAT(text, HasSubstr("9 files, 15.0 MiB: 1 cannot be used; an "
                              "incomplete checkpoint is being written"));
  EXPECT_THAT(text, Not(HasSubstr("\033")));
}

TEST(RenderVerifyTextTest, SaysWhenAllIsWell) {
  VerifyReport report;
  report.sets.push_back(Set("c1", VerifiedSet::State::kGood));
  EXPECT_THAT(RenderVerifyText(report, "/d", /*colors=*/true),
              AllOf(HasSubstr("\033[32mgood\033[0m"),
                    HasSubstr("3 files, 5.0 MiB: nothing is damaged\n")));
  EXPECT_EQ(RenderVerifyText(VerifyReport(), "/d", false),
            "No checkpoints in /d\n");
}

TEST(RenderVerifyJsonTest, HasTheSameContent) {
  const json document = json::parse(RenderVerifyJson(Mixed(), "/d\xff"));
  EXPECT_EQ(document["damaged"], true);
  ASSERT_EQ(document["checkpoints"].size(), 3u);
  const json& first = document["checkpoints"][0];
  EXPECT_EQ(first["job"], "mnist");
  EXPECT_EQ(first["name"], "run-1");
  EXPECT_EQ(first["background"], true);
  EXPECT_EQ(first["layers"], 3);
  EXPECT_EQ(first["layers_lost"], 1);
  EXPECT_EQ(first["step"], 1041);
  EXPECT_EQ(first["files"], 3);
  EXPECT_EQ(first["bytes"], 5 << 20);
  EXPECT_EQ(first["state"], "damaged");
  EXPECT_EQ(document["checkpoints"][2]["step"], -1);
  EXPECT_EQ(document["faults"].size(), 1u);
}

TEST(NamePathTest, TheWordThatStandsAloneIsThePath) {
  EXPECT_THAT(NamePath({"/d"}), ElementsAre("--path=/d"));
  EXPECT_THAT(NamePath({"--json", "/d"}), ElementsAre("--json", "--path=/d"));
  EXPECT_THAT(NamePath({"--config", "f", "/d", "--json"}),
              ElementsAre("--config", "f", "--path=/d", "--json"));
  EXPECT_THAT(NamePath({"--path", "/d"}), ElementsAre("--path", "/d"));
  // The second is left for the options to complain about.
  EXPECT_THAT(NamePath({"/d", "/e"}), ElementsAre("--path=/d", "/e"));
  EXPECT_THAT(NamePath({}), IsEmpty());
}

TEST(IsUsableTest, DamageAndNothingCompleteAreNot) {
  VerifyReport report;
  EXPECT_TRUE(IsUsable(report));
  report.sets.push_back(Set("c2", VerifiedSet::State::kIncomplete));
  EXPECT_FALSE(IsUsable(report));
  report.sets.push_back(Set("c1", VerifiedSet::State::kGood));
  EXPECT_TRUE(IsUsable(report));
  EXPECT_FALSE(IsUsable(Mixed()));
}

TEST(ProgressLineTest, ShowsShareBytesAndTimeLeft) {
  // A quarter took 2 s: three more take 6.
  EXPECT_EQ(ProgressLine(int64_t{1} << 30, int64_t{4} << 30, absl::Seconds(2)),
            "[#######                       ]  25 %  1.0 GiB of 4.0 GiB, 6 s "
            "left");
  EXPECT_THAT(ProgressLine(0, 0, absl::ZeroDuration()), HasSubstr("100 %"));
  EXPECT_THAT(ProgressLine(0, 5, absl::Seconds(1)), HasSubstr("0 %"));
}

TEST(RunVerifyTest, WhatIsNotThereIsAnError) {
  VerifyOptions options;
  options.path = ::testing::TempDir() + "/none/at/all";
  EXPECT_THAT(RunVerify(options),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(options.path)));
}

TEST(VerifyOptionsTest, NeedsAPath) {
  VerifyOptions options;
  OptionSet set("kronctl verify", "test");
  AddVerifyOptions(&set, &options);
  EXPECT_THAT(set.Parse({"--path=/d", "--json"}), IsOk());
  EXPECT_EQ(options.path, "/d");
  EXPECT_TRUE(options.json);
  VerifyOptions none;
  OptionSet empty("kronctl verify", "test");
  AddVerifyOptions(&empty, &none);
  EXPECT_THAT(empty.Parse({}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("path")));
}

}  // namespace
}  // namespace kronserve::client
