// Runs seeds of the simulation: kronserve-simulate --seeds 1..1000.
//
// A seed is one run in one thread; with --jobs several seeds run at a time.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/mutex.h"
#include "tests/simulation/simulation.h"

namespace kronserve::simulation {
namespace {

constexpr char kUsage[] =
    "Usage: kronserve-simulate --seeds A..B [--jobs N] [--trace] [--lines N]\n"
    "                          [--all]\n\n"
    "  --seeds A..B  run these seeds; one number runs one\n"
    "  --jobs N      so many at a time [1]\n"
    "  --trace       print every event of every seed\n"
    "  --lines N     events to print of a seed that fails [60]\n"
    "  --all         go on after the tenth failure, and print no events\n";

struct Flags {
  uint64_t first = 0;
  uint64_t last = 0;
  int jobs = 1;
  int lines = 60;
  bool trace = false;
  bool all = false;
};

bool ParseSeeds(const std::string& text, Flags* flags) {
  const std::vector<std::string> ends = absl::StrSplit(text, "..");
  return ends.size() <= 2 && absl::SimpleAtoi(ends.front(), &flags->first) &&
         absl::SimpleAtoi(ends.back(), &flags->last) &&
         flags->first <= flags->last;
}

bool Parse(int argc, char** argv, Flags* flags) {
  bool ok = false;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--trace" || flag == "--all") {
      (flag == "--all" ? flags->all : flags->trace) = true;
      continue;
    }
    if (++i == argc) return false;
    if (flag == "--seeds") {
      if (!(ok = ParseSeeds(argv[i], flags))) return false;
    } else if (flag == "--jobs") {
      if (!absl::SimpleAtoi(argv[i], &flags->jobs)) return false;
    } else if (flag != "--lines" || !absl::SimpleAtoi(argv[i], &flags->lines)) {
      return false;
    }
  }
  return ok && flags->jobs >= 1 && flags->lines >= 0;
}

// Shows how far it is, and what was found.
//
// Thread safety: thread-safe.
class Report {
 public:
  explicit Report(const Flags& flags)
      : flags_(flags),
        total_(flags.last - flags.first + 1),
        begin_(absl::Now()) {}

  void Add(const RunResult& result) {
    MutexLock lock(&mu_);
    ++done_;
    steps_ += result.steps;
    merged_ += result.merged;
    preconditioned_ += result.preconditioned;
    fallbacks_ += result.fallbacks;
    handed_over_ += result.handed_over;
    restored_ += result.restored;
    if (!result.failure.empty()) {
      ++failures_;
      ShowFailure(result);
    }
    ShowBar();
  }

  bool Enough() {
    MutexLock lock(&mu_);
    return !flags_.all && failures_ >= 10;
  }

  // Returns the exit status.
  int Finish() {
    MutexLock lock(&mu_);
    if (bar_) std::fprintf(stderr, "\r\033[K");
    const double seconds = absl::ToDoubleSeconds(absl::Now() - begin_);
    std::printf(
        "%s: %d seeds in %.1f s, %d steps of ranks, %d contributions merged, "
        "%d layers preconditioned, %d fallbacks, %d layers handed over, %d "
        "restored\n",
        (failures_ == 0 ? Colour(32, "every promise kept")
                        : Colour(31, absl::StrFormat("%d failed", failures_)))
            .c_str(),
        static_cast<int>(done_), seconds, static_cast<int>(steps_),
        static_cast<int>(merged_), static_cast<int>(preconditioned_),
        static_cast<int>(fallbacks_), static_cast<int>(handed_over_),
        static_cast<int>(restored_));
    return failures_ == 0 ? 0 : 1;
  }

 private:
  void ShowFailure(const RunResult& result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (bar_) std::fprintf(stderr, "\r\033[K");
    if (!flags_.all && !flags_.trace) {
      for (const std::string& line : result.trace) {
        std::printf("%s\n", line.c_str());
      }
    }
    std::printf("%s %s\n",
                Colour(31, absl::StrFormat("seed %d:", result.seed)).c_str(),
                result.failure.c_str());
    std::fflush(stdout);
  }

  void ShowBar() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!bar_ || flags_.trace) return;
    constexpr uint64_t kWidth = 40;
    const uint64_t filled = done_ * kWidth / total_;
    if (filled == shown_ && done_ % 50 != 0) return;
    shown_ = filled;
    std::fprintf(stderr, "\r[%s%s] %d/%d, %d failed",
                 std::string(filled, '#').c_str(),
                 std::string(kWidth - filled, '.').c_str(),
                 static_cast<int>(done_), static_cast<int>(total_), failures_);
  }

  std::string Colour(int code, const std::string& text) const {
    if (!colours_) return text;
    return absl::StrFormat("\033[%dm%s\033[0m", code, text);
  }

  const Flags flags_;
  const uint64_t total_;
  const absl::Time begin_;
  const bool bar_ = isatty(STDERR_FILENO) != 0;
  const bool colours_ = isatty(STDOUT_FILENO) != 0;
  Mutex mu_;
  uint64_t done_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t shown_ ABSL_GUARDED_BY(mu_) = 0;
  int failures_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t steps_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t merged_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t preconditioned_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t fallbacks_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t handed_over_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t restored_ ABSL_GUARDED_BY(mu_) = 0;
};

// A seed that fails is run again with its trace: writing it down all the time
// would cost more than the runs.
RunResult RunOne(uint64_t seed, const Flags& flags) {
  RunOptions options;
  if (flags.trace) {
    options.trace = [](const std::string& line) {
      std::printf("%s\n", line.c_str());
    };
  }
  RunResult result = RunSeed(seed, options);
  if (result.failure.empty() || flags.trace || flags.all) return result;
  options.keep_lines = static_cast<size_t>(flags.lines);
  return RunSeed(seed, options);
}

// Takes seeds until none is left, or enough of them failed.
void RunSeeds(const Flags& flags, std::atomic<uint64_t>* next, Report* report) {
  while (!report->Enough()) {
    const uint64_t seed = next->fetch_add(1);
    if (seed > flags.last) return;
    report->Add(RunOne(seed, flags));
  }
}

int Run(const Flags& flags) {
  Report report(flags);
  std::atomic<uint64_t> next{flags.first};
  std::vector<std::thread> workers;
  for (int i = 0; i < flags.jobs; ++i) {
    workers.emplace_back([&] { RunSeeds(flags, &next, &report); });
  }
  for (std::thread& worker : workers) worker.join();
  return report.Finish();
}

}  // namespace
}  // namespace kronserve::simulation

int main(int argc, char** argv) {
  kronserve::simulation::Flags flags;
  if (!kronserve::simulation::Parse(argc, argv, &flags)) {
    std::fputs(kronserve::simulation::kUsage, stderr);
    return 2;
  }
  return kronserve::simulation::Run(flags);
}
