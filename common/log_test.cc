#include "common/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/strings/str_split.h"

namespace kronserve {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class LogTest : public ::testing::Test {
 protected:
  LogTest() { SetLogPrefix("server-7"); }
  ~LogTest() override { SetLogLevel(LogLevel::kInfo); }

  template <typename Function>
  std::string Captured(Function function) {
    ::testing::internal::CaptureStderr();
    function();
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(LogTest, LineHasTimeLevelPrefixMessageAndFields) {
  EXPECT_THAT(Captured([] {
                Log(LogLevel::kWarning, "layer fell back",
                    {{"job", "mnist"}, {"step", 12}, {"loss", 0.5}});
              }),
              MatchesRegex("[0-9]+-[0-9]+-[0-9]+T[0-9]+:[0-9]+:[0-9]+"
                           "\\.[0-9][0-9][0-9]Z WARN server-7 layer fell back "
                           "job=mnist step=12 loss=0.5\n"));
}

TEST_F(LogTest, QuotesValuesThatWouldBreakTheLine) {
  const std::string line = Captured([] {
    Log(LogLevel::kInfo, "event",
        {{"a", "two words"}, {"b", "x=y"}, {"c", ""}, {"d", "one\ntwo"}});
  });
  EXPECT_THAT(line, EndsWith("event a=\"two words\" b=\"x=y\" c=\"\" "
                             "d=\"one\\ntwo\"\n"));
}

TEST_F(LogTest, DropsLinesBelowTheLevel) {
  SetLogLevel(LogLevel::kWarning);
  const std::string text = Captured([] {
    Log(LogLevel::kDebug, "quiet");
    Log(LogLevel::kInfo, "quiet");
    Log(LogLevel::kWarning, "loud");
    Log(LogLevel::kError, "louder");
  });
  EXPECT_THAT(text, Not(HasSubstr("quiet")));
  EXPECT_THAT(text, HasSubstr(" WARN server-7 loud\n"));
  EXPECT_THAT(text, HasSubstr(" ERROR server-7 louder\n"));
}

TEST_F(LogTest, DebugIsWrittenWhenAskedFor) {
  SetLogLevel(LogLevel::kDebug);
  EXPECT_THAT(Captured([] { Log(LogLevel::kDebug, "detail"); }),
              EndsWith(" DEBUG server-7 detail\n"));
}

TEST_F(LogTest, LinesOfThreadsStayWhole) {
  const auto log_fifty = [] {
    for (int k = 0; k < 50; ++k) Log(LogLevel::kInfo, "whole", {{"k", k}});
  };
  const std::string text = Captured([&log_fifty] {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(log_fifty);
    for (std::thread& thread : threads) thread.join();
  });
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  ASSERT_EQ(lines.size(), 201u);  // The last is empty.
  lines.pop_back();
  for (const std::string& line : lines) {
    EXPECT_THAT(line, MatchesRegex("[^ ]+ INFO server-7 whole k=[0-9]+"));
  }
}

}  // namespace
}  // namespace kronserve
