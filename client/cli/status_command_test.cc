#include "client/cli/status_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/grpc_server.h"
#include "common/testing/status_matchers.h"
#include "kronserve/v1/scheduler.grpc.pb.h"

namespace kronserve::client {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Answers with what it is given.
class FakeScheduler final : public v1::Scheduler::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetStatus(
      grpc::CallbackServerContext* context, const v1::GetStatusRequest*,
      v1::GetStatusResponse* response) override {
    *response = status;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  v1::GetStatusResponse status;
};

TEST(FetchStatusTest, ReturnsWhatTheSchedulerSays) {
  FakeScheduler scheduler;
  scheduler.status.set_term(12);
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto endpoint,
                                 Endpoint::Start({}, {&scheduler}));
  StatusOptions options;
  options.scheduler = endpoint->address();
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto status, FetchStatus(options));
  EXPECT_EQ(status.term(), 12u);
}

TEST(FetchStatusTest, ASchedulerThatIsNotThereIsOneClearLine) {
  StatusOptions options;
  {
    FakeScheduler scheduler;
    KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto endpoint,
                                   Endpoint::Start({}, {&scheduler}));
    options.scheduler = endpoint->address();  // Free again below.
  }
  EXPECT_THAT(
      FetchStatus(options),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr("scheduler at " + options.scheduler +
                               " cannot be reached"),
                     HasSubstr("is it running"), Not(HasSubstr("\n")))));
}

TEST(StatusOptionsTest, TakesEveryWord) {
  StatusOptions options;
  OptionSet set("kronctl status", "test");
  AddStatusOptions(&set, &options);
  EXPECT_THAT(set.Parse({"--scheduler=h:1", "--json", "--timeout=1s"}), IsOk());
  EXPECT_EQ(options.scheduler, "h:1");
  EXPECT_TRUE(options.json);
  EXPECT_EQ(options.timeout, absl::Seconds(1));
}

}  // namespace
}  // namespace kronserve::client
