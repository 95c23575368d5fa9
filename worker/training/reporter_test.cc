#include "worker/training/reporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"

namespace kronserve::worker {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class ReporterTest : public ::testing::Test {
 protected:
  ReporterTest() : out_(std::tmpfile()) {
    options_.events = ::testing::TempDir() + "/reporter_test_events";
    options_.progress_out = out_;
    options_.total_steps = 10;
    options_.steps_per_epoch = 5;
  }
  ~ReporterTest() override {
    std::fclose(out_);
    std::remove(options_.events.c_str());
  }

  std::vector<nlohmann::json> Events() const {
    std::vector<nlohmann::json> events;
    std::ifstream file(options_.events);
    for (std::string line; std::getline(file, line);) {
      events.push_back(nlohmann::json::parse(line));
    }
    return events;
  }

  std::string Shown() {
    std::rewind(out_);
    std::string text;
    for (int c = std::fgetc(out_); c != EOF; c = std::fgetc(out_))
      text += static_cast<char>(c);
    return text;
  }

  ReporterOptions options_;
  std::FILE* out_;
};

StepEvent SomeStep() {
  StepEvent event;
  event.step = 4;
  event.epoch = 0;
  event.loss = 0.25;
  event.elapsed = absl::Seconds(2);
  event.waited = absl::Milliseconds(500);
  event.exchanged = absl::Milliseconds(250);
  event.layers = 3;
  event.fallbacks = 1;
  event.nu = 0.75;
  event.assignment_epoch = 6;
  return event;
}

TrainingSummary SomeSummary() {
  TrainingSummary summary;
  summary.steps = 10;
  summary.elapsed = absl::Seconds(4);
  summary.waited = absl::Seconds(1);
  summary.final_accuracy = 0.875;
  summary.fallback_steps = 2;
  summary.layers = 3;
  summary.layers_preconditioned = 3;
  summary.fallen_back["fc2"] = 2;
  return summary;
}

TEST_F(ReporterTest, WritesOneObjectPerEventAtOnce) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto reporter,
                                 Reporter::Create(options_));
  reporter->OnStep(SomeStep());
  const auto events = Events();  // Before anything is closed.
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0],
            nlohmann::json::parse(R"({"event": "step", "step": 4, "epoch": 0,
                "loss": 0.25, "seconds": 2.0, "waited_seconds": 0.5,
                "exchange_seconds": 0.25, "layers": 3,
                "layers_preconditioned": 2, "fallbacks": 1, "nu": 0.75,
                "assignment_epoch": 6})"));
  reporter->OnEval({5, 0, 0.5, 0.875, absl::Seconds(2)});
  EXPECT_EQ(Events()[1],
            nlohmann::json::parse(R"({"event": "eval", "step": 5, "epoch": 0,
                "loss": 0.5, "accuracy": 0.875, "seconds": 2.0})"));
}

TEST_F(ReporterTest, NamesLayersThatFallBackAndTheirReturn) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto reporter,
                                 Reporter::Create(options_));
  // A message may hold bytes that are not UTF-8.
  reporter->OnFallback({7, {{"fc2", "unreachable", "s1 \xff"}}});
  reporter->OnFallback({9, {}});
  const auto events = Events();
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0]["step"], 7);
  EXPECT_EQ(events[0]["layers"][0]["name"], "fc2");
  EXPECT_EQ(events[0]["layers"][0]["reason"], "unreachable");
  EXPECT_TRUE(events[1]["layers"].empty());
  EXPECT_THAT(Shown(),
              AllOf(HasSubstr("step 7: fall back: fc2 (unreachable: s1"),
                    HasSubstr("step 9: all layers are preconditioned again")));
}

TEST_F(ReporterTest, DoneHoldsTheSummaryWithNullForATargetNotReached) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto reporter,
                                 Reporter::Create(options_));
  TrainingSummary summary = SomeSummary();
  EXPECT_THAT(reporter->Done(summary), IsOk());
  summary.end = TrainingSummary::End::kTargetReached;
  summary.steps_to_target = 8;
  summary.time_to_target = absl::Seconds(3);
  EXPECT_THAT(reporter->Done(summary), IsOk());
  const auto events = Events();
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0]["event"], "done");
  EXPECT_EQ(events[0]["end"], "completed");
  EXPECT_EQ(events[0]["steps"], 10);
  EXPECT_EQ(events[0]["seconds"], 4.0);
  EXPECT_EQ(events[0]["waited_seconds"], 1.0);
  EXPECT_EQ(events[0]["final_accuracy"], 0.875);
  EXPECT_EQ(events[0]["fallback_steps"], 2);
  EXPECT_EQ(events[0]["layers"], 3);
  EXPECT_EQ(events[0]["layers_preconditioned"], 3);
  EXPECT_EQ(events[0]["fallen_back_layers"]["fc2"], 2);
  EXPECT_TRUE(events[0]["steps_to_target"].is_null());
  EXPECT_TRUE(events[0]["seconds_to_target"].is_null());
  EXPECT_EQ(events[1]["end"], "target_reached");
  EXPECT_EQ(events[1]["steps_to_target"], 8);
  EXPECT_EQ(events[1]["seconds_to_target"], 3.0);
}

TEST_F(ReporterTest, TheBarShowsLossAndAccuracy) {
  options_.progress = ProgressStyle::kBar;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto reporter,
                                 Reporter::Create(options_));
  reporter->OnEval({4, 0, 0.5, 0.875, absl::Seconds(2)});
  reporter->OnStep(SomeStep());
  EXPECT_THAT(Shown(),
              AllOf(HasSubstr("\r[############............] step 5/10"),
                    HasSubstr("loss 0.2500 accuracy 0.8750"),
                    HasSubstr("fallbacks 1")));
}

TEST_F(ReporterTest, LinesAreWrittenPerEvaluationOnly) {
  options_.events.clear();
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto reporter,
                                 Reporter::Create(options_));
  reporter->OnStep(SomeStep());
  EXPECT_EQ(Shown(), "");
  reporter->OnEval({5, 0, 0.5, 0.875, absl::Seconds(2)});
  EXPECT_EQ(Shown(),
            "step 5/10 epoch 1 loss 0.2500 test loss 0.5000 accuracy 0.8750 "
            "2.0 s\n");
}

TEST_F(ReporterTest, FilesThatCannotBeWrittenAreErrors) {
  options_.events = "/no/such/folder/events";
  EXPECT_THAT(Reporter::Create(options_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("/no/such/folder/events")));
  options_.events = "/dev/full";
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto reporter,
                                 Reporter::Create(options_));
  EXPECT_THAT(reporter->Done(SomeSummary()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("/dev/full")));
  options_.events.clear();
}

TEST(SummaryLineTest, SaysWhatAPersonAsks) {
  EXPECT_EQ(SummaryLine(SomeSummary()),
            "completed: 10 steps in 4.0 s, loss 0.0000, accuracy 0.8750, 3 of "
            "3 layers preconditioned, 2 steps with fallbacks, waited 1.0 s");
  TrainingSummary plain = SomeSummary();
  plain.layers = 0;
  plain.steps_to_target = 8;
  plain.time_to_target = absl::Seconds(3);
  EXPECT_THAT(SummaryLine(plain),
              AllOf(HasSubstr("target after 8 steps and 3.0 s"),
                    Not(HasSubstr("preconditioned"))));
}

TEST_F(ReporterTest, AnotherWorldIsAnEventAndALine) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto reporter,
                                 Reporter::Create(options_));
  reporter->OnWorld({/*restart_count=*/2, /*ranks=*/3, /*rank=*/1,
                     /*start_step=*/40});
  const auto events = Events();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0], nlohmann::json({{"event", "world"},
                                       {"restart_count", 2},
                                       {"ranks", 3},
                                       {"rank", 1},
                                       {"start_step", 40}}));
  EXPECT_THAT(Shown(), HasSubstr("restart 2: 3 ranks go on from step 40"));
}

}  // namespace
}  // namespace kronserve::worker
