#include "client/cli/control_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/grpc_server.h"
#include "common/testing/status_matchers.h"
#include "kronserve/v1/scheduler.grpc.pb.h"

namespace kronserve::client {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The line of a command that went well; otherwise its status.
std::string Line(const absl::StatusOr<std::string>& line) {
  return line.ok() ? *line : line.status().ToString();
}

// Keeps what it was asked; one layer less is left at each question.
class FakeScheduler final : public v1::Scheduler::CallbackService {
 public:
  grpc::ServerUnaryReactor* DrainServer(
      grpc::CallbackServerContext* context,
      const v1::DrainServerRequest* request,
      v1::DrainServerResponse* response) override {
    drain = *request;
    response->set_layers_left(left > 0 ? left-- : 0);
    return Finish(context);
  }
  grpc::ServerUnaryReactor* PinLayers(
      grpc::CallbackServerContext* context, const v1::PinLayersRequest* request,
      v1::PinLayersResponse* response) override {
    pin = *request;
    response->set_layers_moving(1);
    return Finish(context);
  }
  grpc::ServerUnaryReactor* CheckpointJob(
      grpc::CallbackServerContext* context,
      const v1::CheckpointJobRequest* request,
      v1::CheckpointJobResponse* response) override {
    checkpoint = *request;
    response->set_state(left > 0 ? v1::CHECKPOINT_STATE_WRITING
                                 : v1::CHECKPOINT_STATE_COMPLETE);
    response->set_layers(3);
    response->set_layers_written(3 - left);
    response->set_step(40);
    if (left > 0) --left;
    return Finish(context);
  }
  grpc::ServerUnaryReactor* RestoreJob(grpc::CallbackServerContext* context,
                                       const v1::RestoreJobRequest* request,
                                       v1::RestoreJobResponse*) override {
    restore = *request;
    return Finish(context);
  }

  int left = 0;
  grpc::Status refusal;
  v1::DrainServerRequest drain;
  v1::PinLayersRequest pin;
  v1::CheckpointJobRequest checkpoint;
  v1::RestoreJobRequest restore;

 private:
  grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(refusal);
    return reactor;
  }
};

class ControlCommandsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(endpoint_,
                                   Endpoint::Start({}, {&scheduler_}));
    options_.scheduler = endpoint_->address();
    options_.server = "s1";
    options_.job = "mnist";
    options_.id = "a";
  }

  FakeScheduler scheduler_;
  std::unique_ptr<Endpoint> endpoint_;
  ControlOptions options_;
};

TEST_F(ControlCommandsTest, DrainOnlyAsksWithoutAWait) {
  scheduler_.left = 2;
  EXPECT_THAT(Line(Drain(options_)), HasSubstr("2 layers of 's1'"));
  EXPECT_EQ(scheduler_.drain.server(), "s1");
  EXPECT_FALSE(scheduler_.drain.undo());
}

TEST_F(ControlCommandsTest, DrainWaitsUntilNoLayerIsLeft) {
  scheduler_.left = 1;
  options_.wait = absl::Minutes(1);
  EXPECT_THAT(Line(Drain(options_)), HasSubstr("holds no layer"));
  scheduler_.left = 9;
  options_.wait = absl::Nanoseconds(1);
  EXPECT_THAT(Drain(options_), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                        HasSubstr("9 layers")));
}

TEST_F(ControlCommandsTest, DrainIsTakenBackWithoutWaiting) {
  scheduler_.left = 5;
  options_.undo = true;
  options_.wait = absl::Minutes(1);
  EXPECT_THAT(Line(Drain(options_)), HasSubstr("used again"));
  EXPECT_TRUE(scheduler_.drain.undo());
}

TEST_F(ControlCommandsTest, PinNamesLayersAndServer) {
  options_.layers = "fc1,fc2";
  EXPECT_THAT(Line(Pin(options_)), HasSubstr("1 layer on the way"));
  EXPECT_THAT(scheduler_.pin.layers(), ElementsAre("fc1", "fc2"));
  EXPECT_EQ(scheduler_.pin.server(), "s1");
}

TEST_F(ControlCommandsTest, CheckpointWaitsUntilItIsComplete) {
  scheduler_.left = 1;
  options_.wait = absl::Minutes(1);
  options_.step = 40;
  EXPECT_THAT(Line(Checkpoint(options_)),
              AllOf(HasSubstr("complete"), HasSubstr("step 40"),
                    HasSubstr("3 layers")));
  EXPECT_EQ(scheduler_.checkpoint.step(), 40);
  scheduler_.left = 2;
  options_.wait = absl::Nanoseconds(1);
  options_.step = -1;
  EXPECT_THAT(Checkpoint(options_),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("1 of 3 layers")));
  EXPECT_FALSE(scheduler_.checkpoint.has_step());
}

TEST_F(ControlCommandsTest, RestoreAndItsUndo) {
  EXPECT_THAT(Line(Restore(options_)), HasSubstr("checkpoint 'a'"));
  EXPECT_EQ(scheduler_.restore.id(), "a");
  options_.id = "";
  options_.undo = true;
  EXPECT_THAT(Line(Restore(options_)), HasSubstr("nothing"));
  EXPECT_EQ(scheduler_.restore.id(), "");
}

TEST_F(ControlCommandsTest, PassesOnWhatTheSchedulerRefuses) {
  scheduler_.refusal = grpc::Status(grpc::StatusCode::NOT_FOUND, "no 's1'");
  EXPECT_THAT(Drain(options_),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no 's1'")));
}

TEST_F(ControlCommandsTest, ASchedulerThatIsNotThereIsNamed) {
  endpoint_.reset();
  for (const auto command : {&Drain, &Pin, &Checkpoint, &Restore}) {
    EXPECT_THAT((*command)(options_),
                StatusIs(absl::StatusCode::kUnavailable,
                         HasSubstr("scheduler at " + options_.scheduler)));
  }
}

TEST(ControlOptionsTest, NameWhatIsMissing) {
  const auto fault = [](void (*add)(OptionSet*, ControlOptions*),
                        const std::vector<std::string>& words) {
    ControlOptions options;
    OptionSet set("kronctl", "test");
    add(&set, &options);
    return set.Parse(words);
  };
  const auto names = [](const std::string& word) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(word));
  };
  EXPECT_THAT(fault(&AddDrainOptions, {}), names("server"));
  EXPECT_THAT(fault(&AddDrainOptions, {"--server=a", "--wait=1m"}), IsOk());
  EXPECT_THAT(fault(&AddPinOptions, {"--job=j"}), names("server or undo"));
  EXPECT_THAT(fault(&AddPinOptions, {"--job=j", "--undo"}), IsOk());
  EXPECT_THAT(fault(&AddCheckpointOptions, {"--job=j"}), names("id"));
  EXPECT_THAT(fault(&AddCheckpointOptions, {"--job=j", "--id=a", "--step=3"}),
              IsOk());
  EXPECT_THAT(fault(&AddRestoreOptions, {"--job=j"}), names("id or undo"));
  EXPECT_THAT(fault(&AddRestoreOptions, {"--job=j", "--id=a"}), IsOk());
}

}  // namespace
}  // namespace kronserve::client
