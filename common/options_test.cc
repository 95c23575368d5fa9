#include "common/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/testing/status_matchers.h"

namespace kronserve {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::vector<std::string> SplitLines(const std::string& text) {
  return absl::StrSplit(text, '\n');
}

struct Values {
  std::string listen = "127.0.0.1:0";
  std::string scheduler;
  std::string device = "auto";
  bool verbose = false;
  int64_t threads = 2;
  double decay = 0.95;
  absl::Duration budget = absl::Seconds(2);
  absl::Duration deadline = absl::Seconds(1);
  int64_t memory = int64_t{1} << 30;
};

class OptionsTest : public ::testing::Test {
 protected:
  OptionsTest() : options_("kron-test", "Tests options.") {
    options_.Add("listen", &values_.listen, "host:port to serve on");
    options_.Add("scheduler", &values_.scheduler, "host:port to register at");
    options_.Add("device", &values_.device, "where to compute",
                 {"auto", "cpu", "cuda"});
    options_.Add("verbose", &values_.verbose, "log more");
    options_.Add("threads", &values_.threads, "refresh threads", {1, 256});
    options_.Add("decay", &values_.decay, "weight on the old average",
                 {0, 0.999});
    options_.Add("budget", &values_.budget, "time a step may wait");
    options_.Add("deadline", &values_.deadline, "time a round may wait");
    options_.AddBytes("memory", &values_.memory, "memory to use");
    options_.Check([this]() -> std::string {
      if (values_.deadline <= values_.budget / 2) return "";
      return "--deadline is above half of --budget";
    });
  }

  // The faults that Parse() names.
  std::vector<std::string> Faults(const std::vector<std::string>& args) {
    const absl::Status status = options_.Parse(args);
    EXPECT_EQ(status.code(), kInvalid);
    return absl::StrSplit(std::string(status.message()), '\n');
  }

  ~OptionsTest() override {
    if (!path_.empty()) unlink(path_.c_str());
  }

  std::string WriteFile(const std::string& text) {
    path_ =
        absl::StrCat(::testing::TempDir(), "/options_test.", getpid(), ".conf");
    std::ofstream(path_) << text;
    return path_;
  }

  struct Run {
    bool ends;
    int exit_code;
    std::string out;
    std::string err;
  };
  Run ParseOrExit(std::vector<std::string> args) {
    args.insert(args.begin(), "kron-test");
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    Run run{false, -1, "", ""};
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    run.ends = options_.ParseOrExit(static_cast<int>(argv.size()), argv.data(),
                                    &run.exit_code);
    run.out = ::testing::internal::GetCapturedStdout();
    run.err = ::testing::internal::GetCapturedStderr();
    return run;
  }

  Values values_;
  OptionSet options_;
  std::string path_;  // Of the last written file.
};

TEST_F(OptionsTest, KeepsDefaultsWithoutArguments) {
  ASSERT_THAT(options_.Parse({}), IsOk());
  EXPECT_EQ(values_.listen, "127.0.0.1:0");
  EXPECT_EQ(values_.threads, 2);
}

TEST_F(OptionsTest, SetsEveryKindOfValue) {
  ASSERT_THAT(
      options_.Parse({"--listen=127.0.0.1:7000", "--device", "cpu", "--verbose",
                      "--threads=8", "--decay", "0.5", "--budget=60s",
                      "--deadline=1500ms", "--memory=3MiB"}),
      IsOk());
  EXPECT_EQ(values_.listen, "127.0.0.1:7000");
  EXPECT_EQ(values_.device, "cpu");
  EXPECT_TRUE(values_.verbose);
  EXPECT_EQ(values_.threads, 8);
  EXPECT_EQ(values_.decay, 0.5);
  EXPECT_EQ(values_.budget, absl::Seconds(60));
  EXPECT_EQ(values_.deadline, absl::Milliseconds(1500));
  EXPECT_EQ(values_.memory, 3 * 1024 * 1024);
}

TEST_F(OptionsTest, BoolTakesAValueOnlyAfterEquals) {
  ASSERT_THAT(options_.Parse({"--verbose=true"}), IsOk());
  EXPECT_TRUE(values_.verbose);
  ASSERT_THAT(options_.Parse({"--verbose=false"}), IsOk());
  EXPECT_FALSE(values_.verbose);
  EXPECT_THAT(Faults({"--verbose", "false"}),
              ElementsAre(HasSubstr("'false': options are written")));
  EXPECT_THAT(Faults({"--verbose=maybe"}),
              ElementsAre("--verbose=maybe: must be true or false"));
}

TEST_F(OptionsTest, LastOfTwoFlagsWins) {
  ASSERT_THAT(options_.Parse({"--threads=3", "--threads=4"}), IsOk());
  EXPECT_EQ(values_.threads, 4);
}

TEST_F(OptionsTest, NamesTheRangeOfANumber) {
  EXPECT_THAT(Faults({"--threads=0"}),
              ElementsAre("--threads=0: must be from 1 to 256"));
  EXPECT_THAT(Faults({"--threads=257"}),
              ElementsAre("--threads=257: must be from 1 to 256"));
  EXPECT_THAT(Faults({"--threads=2.5"}),
              ElementsAre("--threads=2.5: must be a whole number from 1 to "
                          "256"));
  EXPECT_THAT(Faults({"--threads=99999999999999999999"}),
              ElementsAre(HasSubstr("must be a whole number")));
  EXPECT_THAT(Faults({"--decay=1"}),
              ElementsAre("--decay=1: must be from 0 to 0.999"));
  EXPECT_THAT(Faults({"--decay=nan"}),
              ElementsAre("--decay=nan: must be a number from 0 to 0.999"));
  EXPECT_THAT(Faults({"--decay=inf"}), ElementsAre(HasSubstr("a number")));
  EXPECT_EQ(values_.threads, 2);
  EXPECT_EQ(values_.decay, 0.95);
}

TEST_F(OptionsTest, RefusesDurationsWithoutUnitOrMeaning) {
  EXPECT_THAT(Faults({"--deadline=1"}), ElementsAre(HasSubstr("its unit")));
  EXPECT_THAT(Faults({"--deadline=0s"}), ElementsAre(HasSubstr("above zero")));
  EXPECT_THAT(Faults({"--deadline=-1s"}), ElementsAre(HasSubstr("above zero")));
  EXPECT_THAT(Faults({"--deadline=inf"}), ElementsAre(HasSubstr("finite")));
  EXPECT_EQ(values_.deadline, absl::Seconds(1));
}

TEST_F(OptionsTest, RefusesSizesThatDoNotFit) {
  EXPECT_THAT(Faults({"--memory=0"}), ElementsAre(HasSubstr("above zero")));
  EXPECT_THAT(Faults({"--memory=-5"}), ElementsAre(HasSubstr("a size such")));
  EXPECT_THAT(Faults({"--memory=5MB"}), ElementsAre(HasSubstr("a size such")));
  EXPECT_THAT(Faults({"--memory=8388608TiB"}),  // 2^63
              ElementsAre(HasSubstr("below 2^63")));
  EXPECT_THAT(Faults({"--memory=9223372036854775808"}),
              ElementsAre(HasSubstr("below 2^63")));
  ASSERT_THAT(options_.Parse({"--memory=8388607TiB"}), IsOk());
  EXPECT_EQ(values_.memory, int64_t{8388607} << 40);
}

TEST_F(OptionsTest, NamesTheChoices) {
  EXPECT_THAT(Faults({"--device=gpu"}),
              ElementsAre("--device=gpu: must be one of auto, cpu, cuda"));
}

TEST_F(OptionsTest, UnknownWordSuggestsTheNearest) {
  EXPECT_THAT(Faults({"--thread=3"}),
              ElementsAre("--thread=3: unknown option; did you mean "
                          "'threads'?"));
  EXPECT_THAT(Faults({"--hlep"}), ElementsAre(HasSubstr("'help'?")));
  EXPECT_THAT(Faults({"--frobnicate"}),
              ElementsAre("--frobnicate: unknown option"));
}

TEST_F(OptionsTest, ReportsWordsThatAreNoOptions) {
  EXPECT_THAT(
      Faults({"serve", "-v", "--"}),
      ElementsAre(HasSubstr("'serve'"), HasSubstr("'-v'"), HasSubstr("'--'")));
}

TEST_F(OptionsTest, ReportsMissingValues) {
  EXPECT_THAT(Faults({"--threads"}),
              ElementsAre("--threads: needs a value: --threads=N"));
  EXPECT_THAT(Faults({"--threads", "--verbose"}),
              ElementsAre("--threads: needs a value: --threads=N"));
  EXPECT_THAT(Faults({"--config"}), ElementsAre(HasSubstr("name of a file")));
  EXPECT_THAT(Faults({"--print-config=yes"}),
              ElementsAre("--print-config: takes no value"));
}

TEST_F(OptionsTest, NegativeNumberIsAValue) {
  EXPECT_THAT(Faults({"--threads", "-1"}),
              ElementsAre("--threads=-1: must be from 1 to 256"));
}

TEST_F(OptionsTest, RequiredMustBeGivenAndNotEmpty) {
  options_.Require("scheduler");
  const char* const fault =
      "--scheduler=TEXT: must be given: host:port to register at";
  EXPECT_THAT(Faults({}), ElementsAre(fault));
  EXPECT_THAT(Faults({"--scheduler="}), ElementsAre(fault));
  EXPECT_THAT(options_.Parse({"--scheduler=127.0.0.1:1"}), IsOk());
}

TEST_F(OptionsTest, ReportsBrokenRelations) {
  EXPECT_THAT(Faults({"--deadline=1001ms"}),
              ElementsAre("--deadline is above half of --budget"));
}

TEST_F(OptionsTest, ReportsAllFaultsAtOnce) {
  options_.Require("scheduler");
  const std::string path = WriteFile("threads = 0\ncolour = red\nnonsense\n");
  EXPECT_THAT(
      Faults({"--config=" + path, "stray", "--decay=2", "--lissten=x",
              "--deadline=5s"}),
      ElementsAre(HasSubstr("'stray'"), StartsWith(path + ":1: threads = 0"),
                  StartsWith(path + ":2: colour = red: unknown option"),
                  EndsWith(":3: nonsense: is not 'name = value'"),
                  HasSubstr("--decay=2"), HasSubstr("'listen'?"),
                  HasSubstr("--scheduler"), HasSubstr("half of --budget")));
}

TEST_F(OptionsTest, FlagBeatsFileWhereverItStands) {
  const std::string path = WriteFile(
      "# A comment\n\n  threads=7   # and another\nlisten = 127.0.0.1:1\r\n");
  ASSERT_THAT(options_.Parse({"--threads=9", "--config", path}), IsOk());
  EXPECT_EQ(values_.threads, 9);
  EXPECT_EQ(values_.listen, "127.0.0.1:1");
}

TEST_F(OptionsTest, FileValuesMayBeQuoted) {
  ASSERT_THAT(options_.Parse({"--config=" +
                              WriteFile("listen = \"a # b \\\" c \" # d\n")}),
              IsOk());
  EXPECT_EQ(values_.listen, "a # b \" c ");
  ASSERT_THAT(options_.Parse({"--config=" + WriteFile("listen = a#b\n")}),
              IsOk());
  EXPECT_EQ(values_.listen, "a#b");
  EXPECT_THAT(Faults({"--config=" + WriteFile("listen = \"a\n")}),
              ElementsAre(HasSubstr("quotes do not match")));
}

TEST_F(OptionsTest, WordTwiceInAFileIsAFault) {
  EXPECT_THAT(Faults({"--config=" + WriteFile("threads=3\nthreads=4\n")}),
              ElementsAre(HasSubstr(":2: threads=4: stands in the file "
                                    "twice")));
}

TEST_F(OptionsTest, BuiltinsDoNotStandInAFile) {
  EXPECT_THAT(Faults({"--config=" + WriteFile("config = other\n")}),
              ElementsAre(HasSubstr("unknown option")));
}

TEST_F(OptionsTest, UnreadableFileIsNamedWithItsReason) {
  EXPECT_THAT(Faults({"--config=/nonexistent/kron.conf"}),
              ElementsAre("cannot read configuration file "
                          "'/nonexistent/kron.conf': No such file or "
                          "directory"));
  EXPECT_THAT(Faults({"--config=/"}), ElementsAre(HasSubstr("Is a directory")));
  EXPECT_THAT(Faults({"--config=/dev/zero"}),
              ElementsAre(HasSubstr("larger than 1 MiB")));
}

TEST_F(OptionsTest, FileWithoutReadPermissionIsNamed) {
  const std::string path = WriteFile("threads = 3\n");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  // Root reads every file: be somebody else meanwhile.
  const uid_t user = geteuid();
  if (user == 0) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  EXPECT_THAT(Faults({"--config=" + path}),
              ElementsAre(HasSubstr("Permission denied")));
  ASSERT_EQ(seteuid(user), 0);
}

TEST_F(OptionsTest, ConfigRoundTrips) {
  ASSERT_THAT(
      options_.Parse({"--listen=\"odd # \\ name\"", "--verbose", "--threads=31",
                      "--decay=0.1234567890123", "--budget=90s",
                      "--deadline=250ms", "--memory=1025KiB", "--device=cpu"}),
      IsOk());
  const Values before = values_;
  const std::string config = options_.Config();
  values_ = Values();
  ASSERT_THAT(options_.Parse({"--config=" + WriteFile(config)}), IsOk());
  EXPECT_EQ(values_.listen, before.listen);
  EXPECT_EQ(values_.scheduler, "");
  EXPECT_EQ(values_.decay, before.decay);
  EXPECT_EQ(values_.budget, before.budget);
  EXPECT_EQ(values_.memory, before.memory);
  EXPECT_EQ(options_.Config(), config);
}

TEST_F(OptionsTest, HelpTeaches) {
  options_.Require("scheduler");
  // Help shows the defaults, not what was parsed.
  ASSERT_THAT(options_.Parse({"--threads=9", "--scheduler=s:1"}), IsOk());
  const std::string help = options_.Help();
  EXPECT_THAT(help, StartsWith("kron-test 0.1.0: Tests options.\n"));
  EXPECT_THAT(
      help, AllOf(HasSubstr("--listen=TEXT\n      host:port to serve on "
                            "[127.0.0.1:0]"),
                  HasSubstr("host:port to register at (must be given)"),
                  HasSubstr("--device=auto|cpu|cuda"),
                  HasSubstr("--verbose\n      log more [false]"),
                  HasSubstr("refresh threads; from 1 to 256 [2]"),
                  HasSubstr("time a step may wait [2s]"),
                  HasSubstr("memory to use [1GiB]"), HasSubstr("--config=FILE"),
                  HasSubstr("--print-config"), HasSubstr("TIME is 500ms"),
                  HasSubstr("Exit status")));
  for (const std::string& line : SplitLines(help)) {
    EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST_F(OptionsTest, HelpWrapsALongPurpose) {
  const std::string words = "one two three four five six seven eight nine ten ";
  const std::string help = OptionSet("kron-test", words + words + ".").Help();
  for (const std::string& line : SplitLines(help)) {
    EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST_F(OptionsTest, OpenEndedRangeReadsAtLeast) {
  int64_t steps = 1;
  OptionSet options("kron-test", "Tests.");
  options.Add("steps", &steps, "steps",
              {1, std::numeric_limits<int64_t>::max()});
  EXPECT_THAT(options.Parse({"--steps=0"}),
              StatusIs(kInvalid, "--steps=0: must be at least 1"));
}

TEST_F(OptionsTest, GoodOptionsLetTheProgramRun) {
  const Run run = ParseOrExit({"--threads=3"});
  EXPECT_FALSE(run.ends);
  EXPECT_EQ(run.out + run.err, "");
  EXPECT_EQ(values_.threads, 3);
}

TEST_F(OptionsTest, FaultsEndWithTwoOnStderr) {
  const Run run = ParseOrExit({"--threads=0", "--colour=red"});
  EXPECT_TRUE(run.ends);
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.err,
            "kron-test: 2 faults in the options:\n"
            "  --threads=0: must be from 1 to 256\n"
            "  --colour=red: unknown option\n"
            "Run 'kron-test --help' for all options.\n");
}

TEST_F(OptionsTest, HelpAndVersionEndWithZeroWhateverElseIsWrong) {
  options_.Require("scheduler");
  const Run help = ParseOrExit({"--help", "--threads=0"});
  EXPECT_TRUE(help.ends);
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_EQ(help.out, options_.Help());
  EXPECT_EQ(help.err, "");
  EXPECT_EQ(ParseOrExit({"-h"}).out, help.out);
  const Run version = ParseOrExit({"--version"});
  EXPECT_TRUE(version.ends);
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.out, "kron-test 0.1.0\n");
}

TEST_F(OptionsTest, PrintConfigShowsTheResultAndEndsWithZero) {
  const Run run = ParseOrExit({"--config=" + WriteFile("threads = 5\n"),
                               "--print-config", "--decay=0.5"});
  EXPECT_TRUE(run.ends);
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("\nthreads = 5\n"), HasSubstr("\ndecay = 0.5\n"),
                    HasSubstr("\nmemory = 1GiB\n")));
}

TEST_F(OptionsTest, PrintConfigWithFaultsEndsWithTwo) {
  const Run run = ParseOrExit({"--print-config", "--threads=0"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.out, "");
}

}  // namespace
}  // namespace kronserve
