#include "worker/elastic_join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "common/testing/fake_clock.h"
#include "common/testing/status_matchers.h"

namespace kronserve::worker {
namespace {

using ::kronserve::testing::FakeClock;
using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class JoinElasticTest : public ::testing::Test {
 protected:
  // Answers the attempts in order, then OK. The session is null: nobody looks.
  absl::StatusOr<std::unique_ptr<Session>> Join(
      std::vector<absl::Status> answers) {
    SessionOptions options;
    options.restart_count = 4;
    options.join_timeout = absl::Seconds(10);
    client::Timing timing;
    timing.clock = &clock_;
    timing.wait = [this](absl::Duration time) { clock_.Advance(time); };
    size_t next = 0;
    return JoinElastic(
        options,
        [&](const SessionOptions& attempt)
            -> absl::StatusOr<std::unique_ptr<Session>> {
          counts_.push_back(attempt.restart_count);
          timeouts_.push_back(attempt.join_timeout);
          if (next == answers.size()) return std::unique_ptr<Session>();
          clock_.Advance(absl::Seconds(1));
          return answers[next++];
        },
        timing);
  }

  FakeClock clock_;
  std::vector<int64_t> counts_;
  std::vector<absl::Duration> timeouts_;
};

TEST_F(JoinElasticTest, FollowsTheJobToItsRestartCount) {
  const absl::Status behind = absl::AbortedError("at restart 6");
  EXPECT_THAT(Join({behind, behind}).status(), IsOk());
  EXPECT_THAT(counts_, ElementsAre(4, 5, 6));
  EXPECT_THAT(timeouts_, ElementsAre(absl::Seconds(10), absl::Seconds(9),
                                     absl::Seconds(8)));
}

TEST_F(JoinElasticTest, WaitsForTheLeaseOfTheProcessBefore) {
  const absl::Status held = absl::AlreadyExistsError("held");
  EXPECT_THAT(Join({held, held, absl::AbortedError("restart 5")}).status(),
              IsOk());
  EXPECT_THAT(counts_, ElementsAre(4, 4, 4, 5));
}

TEST_F(JoinElasticTest, GivesUpInTimeWithTheReason) {
  EXPECT_THAT(
      Join(std::vector<absl::Status>(50, absl::AlreadyExistsError("held")))
          .status(),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               AllOf(HasSubstr("no world within 10s"), HasSubstr("held"))));
  EXPECT_LT(counts_.size(), 11u);
}

TEST_F(JoinElasticTest, OtherErrorsAreFinal) {
  EXPECT_THAT(
      Join({absl::ResourceExhaustedError("no memory")}).status(),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no memory")));
  EXPECT_THAT(counts_, ElementsAre(4));
}

}  // namespace
}  // namespace kronserve::worker
