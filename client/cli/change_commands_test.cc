#include "client/cli/change_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "client/testing/fake_scheduler.h"
#include "common/testing/fake_clock.h"
#include "common/testing/status_matchers.h"

namespace kronserve::client {
namespace {

using ::kronserve::client::testing::FakeScheduler;
using ::kronserve::testing::FakeClock;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class ChangeCommandsTest : public ::testing::Test {
 protected:
  ChangeCommandsTest() : out_(std::tmpfile()) {}
  ~ChangeCommandsTest() override { std::fclose(out_); }

  // Runs "kronctl words..."; waiting moves the clock.
  absl::StatusOr<std::string> Run(std::vector<std::string> words) {
    const ChangeCommand* command = FindChangeCommand(words[0]);
    if (command == nullptr) return absl::NotFoundError("no such command");
    words.erase(words.begin());
    ChangeOptions options;
    options.names = TakeNames(&words);
    OptionSet set("kronctl", "test");
    command->add_options(&set, &options);
    if (const absl::Status parsed = set.Parse(words); !parsed.ok()) {
      return parsed;
    }
    CommandContext context;
    context.scheduler = &scheduler_;
    context.timing.clock = &clock_;
    context.timing.wait = [this](absl::Duration time) { clock_.Advance(time); };
    context.progress_out = out_;
    context.terminal = terminal_;
    context.wall_time = absl::FromCivil(absl::CivilSecond(2030, 1, 2, 3, 4, 5),
                                        absl::UTCTimeZone());
    return command->run(options, context);
  }

  std::string Shown() {
    std::rewind(out_);
    std::string text;
    for (int c = std::fgetc(out_); c != EOF; c = std::fgetc(out_))
      text += static_cast<char>(c);
    return text;
  }

  static v1::DrainServerResponse Left(int64_t layers) {
    v1::DrainServerResponse response;
    response.set_layers_left(layers);
    return response;
  }
  static v1::CheckpointJobResponse Written(int64_t layers,
                                           v1::CheckpointState state) {
    v1::CheckpointJobResponse response;
    response.set_state(state);
    response.set_step(99);
    response.set_layers_written(layers);
    response.set_layers(3);
    return response;
  }

  FakeScheduler scheduler_;
  FakeClock clock_;
  bool terminal_ = false;
  std::FILE* out_;
};

TEST_F(ChangeCommandsTest, DrainAnswersAtOnce) {
  scheduler_.drain_server().answers = {Left(5)};
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const std::string text, Run({"drain", "s1"}));
  EXPECT_EQ(text,
            "server 's1' drains, 5 layers to move; 'kronctl status' shows how "
            "far it is\n");
  ASSERT_THAT(scheduler_.drain_server().requests, SizeIs(1));
  EXPECT_EQ(scheduler_.drain_server().requests[0].server(), "s1");
  EXPECT_FALSE(scheduler_.drain_server().requests[0].undo());
}

TEST_F(ChangeCommandsTest, DrainWaitsThroughASchedulerThatIsAway) {
  scheduler_.drain_server().answers = {
      Left(3), Left(2), absl::UnavailableError("gone"), Left(2), Left(0)};
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const std::string text,
                                 Run({"drain", "s1", "--wait"}));
  EXPECT_EQ(text, "server 's1' has no layers: it may be stopped\n");
  // Lines, each state once; no control characters.
  EXPECT_EQ(Shown(),
            "1/3 layers have left server 's1'\n"
            "3/3 layers have left server 's1'\n");
}

TEST_F(ChangeCommandsTest, ATerminalGetsABarThatIsTakenAway) {
  terminal_ = true;
  scheduler_.drain_server().answers = {Left(2), Left(1), Left(0)};
  ASSERT_TRUE(Run({"drain", "s1", "--wait"}).ok());
  EXPECT_EQ(Shown(),
            "\r[###############...............] 1/2 layers have left server "
            "'s1'\x1b[K"
            "\r[##############################] 2/2 layers have left server "
            "'s1'\x1b[K"
            "\r\x1b[K");
}

TEST_F(ChangeCommandsTest, WaitingEndsWithWhatIsLeft) {
  scheduler_.drain_server().answers = {Left(4)};
  EXPECT_THAT(
      Run({"drain", "s1", "--wait", "--wait-timeout=10s"}).status(),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               HasSubstr("not done within 10s: server 's1' drains, 4 layers")));
}

TEST_F(ChangeCommandsTest, DrainCanBeTakenBack) {
  scheduler_.drain_server().answers = {Left(0)};
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const std::string text,
                                 Run({"drain", "s1", "--undo"}));
  EXPECT_EQ(text, "server 's1' takes layers again\n");
  EXPECT_TRUE(scheduler_.drain_server().requests[0].undo());
}

TEST_F(ChangeCommandsTest, TheSchedulersRefusalIsTheError) {
  scheduler_.drain_server().answers = {absl::NotFoundError("no server 's9'")};
  EXPECT_THAT(Run({"drain", "s9", "--wait"}).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no server")));
}

TEST_F(ChangeCommandsTest, PinNamesLayersOrAll) {
  v1::PinLayersResponse moving;
  moving.set_layers_moving(1);
  scheduler_.pin_layers().answers = {moving};
  KRONSERVE_ASSERT_OK_AND_ASSIGN(
      std::string text, Run({"pin", "mnist", "fc1", "fc2", "--server=s1"}));
  EXPECT_EQ(text,
            "2 layers of job 'mnist': pinned to server 's1', 1 to move\n");
  EXPECT_THAT(scheduler_.pin_layers().requests[0].layers(),
              ElementsAre("fc1", "fc2"));
  KRONSERVE_ASSERT_OK_AND_ASSIGN(text,
                                 Run({"pin", "mnist", "--all", "--undo"}));
  EXPECT_EQ(text, "all layers of job 'mnist': not pinned any more\n");
  EXPECT_THAT(scheduler_.pin_layers().requests[1].layers(), IsEmpty());
  EXPECT_EQ(scheduler_.pin_layers().requests[1].server(), "");
}

TEST_F(ChangeCommandsTest, CheckpointIsFollowedByItsId) {
  scheduler_.checkpoint_job().answers = {
      Written(0, v1::CHECKPOINT_STATE_WRITING),
      Written(2, v1::CHECKPOINT_STATE_WRITING),
      Written(3, v1::CHECKPOINT_STATE_COMPLETE)};
  KRONSERVE_ASSERT_OK_AND_ASSIGN(
      const std::string text,
      Run({"checkpoint", "mnist", "--id=a.1", "--step=99", "--wait"}));
  EXPECT_EQ(text,
            "checkpoint 'a.1' of job 'mnist' is complete: cut after step 99, "
            "3 of 3 layers\n");
  const auto& requests = scheduler_.checkpoint_job().requests;
  ASSERT_THAT(requests, SizeIs(3));
  EXPECT_EQ(requests[0].SerializeAsString(), requests[2].SerializeAsString());
  EXPECT_EQ(requests[0].step(), 99);
}

TEST_F(ChangeCommandsTest, CheckpointHasAnIdAndNoStepUnlessGiven) {
  scheduler_.checkpoint_job().answers = {
      Written(0, v1::CHECKPOINT_STATE_WRITING)};
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const std::string text,
                                 Run({"checkpoint", "mnist"}));
  EXPECT_THAT(text, AllOf(HasSubstr("is being written"),
                          HasSubstr("--id=manual-20300102-030405 --wait")));
  const v1::CheckpointJobRequest& request =
      scheduler_.checkpoint_job().requests[0];
  EXPECT_EQ(request.id(), "manual-20300102-030405");
  EXPECT_FALSE(request.has_step());
}

TEST_F(ChangeCommandsTest, CheckpointWaitsForAJobThatHasJustBegun) {
  scheduler_.checkpoint_job().answers = {
      absl::UnavailableError("retry in a second"),
      Written(0, v1::CHECKPOINT_STATE_WRITING)};
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const std::string text,
                                 Run({"checkpoint", "mnist"}));
  EXPECT_THAT(text, HasSubstr("is being written"));
  EXPECT_THAT(scheduler_.checkpoint_job().requests, SizeIs(2));
  // As long as --timeout allows, and no longer.
  scheduler_.checkpoint_job().answers = {
      absl::UnavailableError("retry in a second")};
  EXPECT_THAT(Run({"checkpoint", "mnist", "--timeout=1s"}).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("retry")));
}

TEST_F(ChangeCommandsTest, CheckpointThatFailedSaysWhy) {
  scheduler_.checkpoint_job().answers = {
      Written(0, v1::CHECKPOINT_STATE_WRITING),
      absl::DataLossError("server 's1': disk full")};
  EXPECT_THAT(Run({"checkpoint", "mnist", "--wait"}).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("disk full")));
}

TEST_F(ChangeCommandsTest, RestoreNamesACheckpointOrTakesItBack) {
  scheduler_.restore_job().answers = {v1::RestoreJobResponse()};
  KRONSERVE_ASSERT_OK_AND_ASSIGN(std::string text,
                                 Run({"restore", "mnist", "a.1"}));
  EXPECT_THAT(text, HasSubstr("starts from checkpoint 'a.1'"));
  KRONSERVE_ASSERT_OK_AND_ASSIGN(text, Run({"restore", "mnist", "--undo"}));
  EXPECT_THAT(text, HasSubstr("restores no checkpoint"));
  EXPECT_EQ(scheduler_.restore_job().requests[0].id(), "a.1");
  EXPECT_EQ(scheduler_.restore_job().requests[1].id(), "");
}

TEST_F(ChangeCommandsTest, WrongUseIsOneLineThatShowsTheRightOne) {
  const std::vector<std::vector<std::string>> wrong = {
      {"drain"},
      {"drain", "s1", "s2"},
      {"drain", "s1", "--undo", "--wait"},
      {"pin", "mnist", "--server=s1"},
      {"pin", "mnist", "fc1"},
      {"pin", "mnist", "fc1", "--all", "--undo"},
      {"pin", "mnist", "fc1", "--server=s1", "--undo"},
      {"checkpoint"},
      {"restore", "mnist"},
      {"restore", "mnist", "a", "--undo"},
  };
  for (const auto& words : wrong) {
    EXPECT_THAT(Run(words).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("kronctl " + words[0] + " "),
                               Not(HasSubstr("\n")))));
  }
  EXPECT_EQ(FindChangeCommand("drian"), nullptr);
}

}  // namespace
}  // namespace kronserve::client
