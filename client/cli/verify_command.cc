#include "client/cli/verify_command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/table.h"
#include "common/clock.h"

namespace kronserve::client {
namespace {

using checkpoint::VerifiedSet;
using checkpoint::VerifyReport;
using nlohmann::json;

constexpr int kBarWidth = 30;
constexpr absl::Duration kRedrawEvery = absl::Milliseconds(100);

Cell StateCell(VerifiedSet::State state) {
  switch (state) {
    case VerifiedSet::State::kGood:
      return {"good", Color::kGreen};
    case VerifiedSet::State::kIncomplete:
      return {"incomplete", Color::kYellow};
    case VerifiedSet::State::kDamaged:
      break;
  }
  return {"damaged", Color::kRed};
}

std::vector<Cell> Row(const VerifiedSet& set) {
  const std::string lost =
      set.layers_lost == 0 ? "" : absl::StrCat(" (", set.layers_lost, " lost)");
  return {set.job,
          set.background ? absl::StrCat("background of ", set.name) : set.name,
          absl::StrCat(set.layers, lost),
          set.step < 0 ? "-" : absl::StrCat(set.step),
          absl::StrCat(set.files),
          FormatBytes(set.bytes),
          StateCell(set.state)};
}

std::string Summary(const VerifyReport& report) {
  int64_t files = 0;
  int64_t bytes = 0;
  bool incomplete = false;
  for (const VerifiedSet& set : report.sets) {
    files += set.files;
    bytes += set.bytes;
    incomplete |= set.state == VerifiedSet::State::kIncomplete;
  }
  return absl::StrCat(
      files, files == 1 ? " file, " : " files, ", FormatBytes(bytes), ": ",
      report.faults.empty()
          ? "nothing is damaged"
          : absl::StrCat(report.faults.size(), " cannot be used"),
      incomplete ? "; an incomplete checkpoint is being written or was given "
                   "up, and cannot be restored"
                 : "",
      "\n");
}

// Redraws one line of a terminal, at most ten times a second.
class Progress {
 public:
  explicit Progress(bool shown) : shown_(shown) {}
  ~Progress() {
    if (drawn_) std::fputs("\r\033[K", stderr);
  }

  void Show(int64_t done, int64_t total) {
    const absl::Time now = SteadyClock().Now();
    if (!shown_ || now - last_ < kRedrawEvery) return;
    last_ = now;
    drawn_ = true;
    std::fprintf(stderr, "\r\033[K%s",
                 ProgressLine(done, total, now - start_).c_str());
    std::fflush(stderr);
  }

 private:
  const bool shown_;
  const absl::Time start_ = SteadyClock().Now();
  absl::Time last_ = start_;
  bool drawn_ = false;
};

}  // namespace

void AddVerifyOptions(OptionSet* set, VerifyOptions* options) {
  set->Add("path", &options->path,
           "what to read: the --checkpoint-dir of the servers (DIR), one job "
           "in it (DIR/JOB), or one job checkpoint (DIR/JOB/ID); may be given "
           "without --path=");
  set->Require("path");
  set->Add("json", &options->json, "print one JSON object instead of a table");
}

std::string ProgressLine(int64_t done, int64_t total, absl::Duration elapsed) {
  const double share =
      total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1;
  const int filled = static_cast<int>(share * kBarWidth);
  const double left =
      share > 0 ? absl::ToDoubleSeconds(elapsed) * (1 - share) / share : 0;
  return absl::StrFormat(
      "[%s%s] %3d %%  %s of %s, %.0f s left", std::string(filled, '#'),
      std::string(kBarWidth - filled, ' '), static_cast<int>(100 * share),
      FormatBytes(done), FormatBytes(total), left);
}

std::vector<std::string> NamePath(std::vector<std::string> words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const bool is_value =
        i > 0 && (words[i - 1] == "--path" || words[i - 1] == "--config");
    if (is_value || absl::StartsWith(words[i], "-")) continue;
    words[i] = absl::StrCat("--path=", words[i]);
    break;
  }
  return words;
}

bool IsUsable(const VerifyReport& report) {
  const bool none_complete =
      !report.sets.empty() &&
      std::all_of(report.sets.begin(), report.sets.end(),
                  [](const VerifiedSet& set) {
                    return set.state == VerifiedSet::State::kIncomplete;
                  });
  return report.faults.empty() && !none_complete;
}

std::string RenderVerifyText(const VerifyReport& report,
                             const std::string& path, bool colors) {
  if (report.sets.empty()) {
    return absl::StrCat("No checkpoints in ", Printable(path), "\n");
  }
  std::vector<std::vector<Cell>> rows = {
      {"JOB", "CHECKPOINT", "LAYERS", "STEP", "FILES", "BYTES", "STATE"}};
  for (const VerifiedSet& set : report.sets) rows.push_back(Row(set));
  std::string text = FormatTable(rows, colors);
  absl::StrAppend(&text, "\n");
  for (const std::string& fault : report.faults) {
    absl::StrAppend(&text, Printable(fault), "\n");
  }
  return absl::StrCat(text, Summary(report));
}

std::string RenderVerifyJson(const VerifyReport& report,
                             const std::string& path) {
  json checkpoints = json::array();
  for (const VerifiedSet& set : report.sets) {
    checkpoints.push_back({{"job", set.job},
                           {"name", set.name},
                           {"background", set.background},
                           {"layers", set.layers},
                           {"layers_lost", set.layers_lost},
                           {"step", set.step},
                           {"files", set.files},
                           {"bytes", set.bytes},
                           {"state", StateCell(set.state).text}});
  }
  const json document = {{"path", path},
                         {"damaged", !report.faults.empty()},
                         {"checkpoints", std::move(checkpoints)},
                         {"faults", report.faults}};
  // Names of folders may be any bytes.
  return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

absl::StatusOr<VerifyReport> RunVerify(const VerifyOptions& options) {
  Progress progress(isatty(STDERR_FILENO) == 1);
  return checkpoint::Verify(
      options.path,
      [&progress](int64_t done, int64_t total) { progress.Show(done, total); });
}

}  // namespace kronserve::client
