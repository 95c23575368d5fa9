#include "worker/training/reporter.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/clock.h"

namespace kronserve::worker {
namespace {

using nlohmann::json;

constexpr absl::Duration kDrawEvery = absl::Milliseconds(100);
constexpr int kBarCells = 24;

double Seconds(absl::Duration duration) {
  return absl::ToDoubleSeconds(duration);
}

const char* EndName(TrainingSummary::End end) {
  switch (end) {
    case TrainingSummary::End::kCompleted:
      return "completed";
    case TrainingSummary::End::kTargetReached:
      return "target_reached";
    case TrainingSummary::End::kStopped:
      return "stopped";
    case TrainingSummary::End::kDiverged:
      return "diverged";
  }
  return "unknown";
}

json DoneEvent(const TrainingSummary& summary) {
  json done = {{"event", "done"},
               {"end", EndName(summary.end)},
               {"steps", summary.steps},
               {"seconds", Seconds(summary.elapsed)},
               {"waited_seconds", Seconds(summary.waited)},
               {"exchange_seconds", Seconds(summary.exchanged)},
               {"last_loss", summary.last_loss},
               {"final_accuracy", summary.final_accuracy},
               {"steps_to_target", nullptr},
               {"seconds_to_target", nullptr},
               {"fallback_steps", summary.fallback_steps},
               {"layers", summary.layers},
               {"layers_preconditioned", summary.layers_preconditioned},
               {"fallen_back_layers", json::object()}};
  if (summary.steps_to_target) {
    done["steps_to_target"] = *summary.steps_to_target;
    done["seconds_to_target"] = Seconds(*summary.time_to_target);
  }
  for (const auto& [name, steps] : summary.fallen_back) {
    done["fallen_back_layers"][name] = steps;
  }
  return done;
}

// A message of another process may hold any bytes; they are replaced, not
// thrown on.
std::string Dump(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reporter>> Reporter::Create(
    const ReporterOptions& options) {
  File events(nullptr, &std::fclose);
  if (!options.events.empty()) {
    events.reset(std::fopen(options.events.c_str(), "w"));
    if (events == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("events file '", options.events,
                       "' cannot be written: ", std::strerror(errno)));
    }
  }
  return std::unique_ptr<Reporter>(new Reporter(options, std::move(events)));
}

Reporter::Reporter(const ReporterOptions& options, File events)
    : options_(options), events_(std::move(events)) {}

void Reporter::Write(const std::string& line) {
  if (events_ == nullptr) return;
  const std::string text = line + "\n";
  if (std::fwrite(text.data(), 1, text.size(), events_.get()) != text.size() ||
      std::fflush(events_.get()) != 0) {
    write_failed_ = true;
  }
}

void Reporter::OnStep(const StepEvent& event) {
  last_loss_ = event.loss;
  if (events_ != nullptr) {
    Write(Dump({{"event", "step"},
                {"step", event.step},
                {"epoch", event.epoch},
                {"loss", event.loss},
                {"seconds", Seconds(event.elapsed)},
                {"waited_seconds", Seconds(event.waited)},
                {"exchange_seconds", Seconds(event.exchanged)},
                {"layers", event.layers},
                {"layers_preconditioned", event.layers - event.fallbacks},
                {"fallbacks", event.fallbacks},
                {"nu", event.nu},
                {"assignment_epoch", event.assignment_epoch}}));
  }
  if (options_.progress == ProgressStyle::kBar) DrawBar(event);
}

void Reporter::DrawBar(const StepEvent& event) {
  const absl::Time now = SteadyClock().Now();
  const int64_t taken = event.step + 1;
  if (now - last_drawn_ < kDrawEvery && taken < options_.total_steps) return;
  last_drawn_ = now;
  bar_open_ = true;
  const int64_t total = std::max(taken, options_.total_steps);
  const int filled = static_cast<int>(kBarCells * taken / total);
  const double seconds = Seconds(event.elapsed);
  const std::string line = absl::StrCat(
      "\r[", std::string(filled, '#'), std::string(kBarCells - filled, '.'),
      "] step ", taken, "/", total,
      absl::StrFormat(" epoch %.1f loss %.4f",
                      double(taken) / double(options_.steps_per_epoch),
                      event.loss),
      accuracy_.empty() ? "" : " accuracy ", accuracy_,
      absl::StrFormat(" %.0f steps/s", seconds > 0 ? taken / seconds : 0.0),
      event.fallbacks > 0 ? absl::StrCat(" fallbacks ", event.fallbacks) : "",
      "\x1b[K");
  std::fputs(line.c_str(), options_.progress_out);
  std::fflush(options_.progress_out);
}

void Reporter::PrintLine(const std::string& line) {
  if (bar_open_) std::fputs("\r\x1b[K", options_.progress_out);
  bar_open_ = false;
  std::fprintf(options_.progress_out, "%s\n", line.c_str());
  std::fflush(options_.progress_out);
}

void Reporter::OnEval(const EvalEvent& event) {
  accuracy_ = absl::StrFormat("%.4f", event.accuracy);
  Write(Dump({{"event", "eval"},
              {"step", event.step},
              {"epoch", event.epoch},
              {"loss", event.loss},
              {"accuracy", event.accuracy},
              {"seconds", Seconds(event.elapsed)}}));
  if (options_.progress == ProgressStyle::kNone) return;
  PrintLine(absl::StrFormat(
      "step %d/%d epoch %d loss %.4f test loss %.4f accuracy %s %.1f s",
      event.step, options_.total_steps, event.epoch + 1, last_loss_, event.loss,
      accuracy_, Seconds(event.elapsed)));
}

void Reporter::OnFallback(const FallbackEvent& event) {
  json layers = json::array();
  std::string line;
  for (const auto& layer : event.layers) {
    layers.push_back({{"name", layer.name},
                      {"reason", layer.reason},
                      {"message", layer.message}});
    absl::StrAppend(&line, line.empty() ? "" : ", ", layer.name, " (",
                    layer.reason, layer.message.empty() ? "" : ": ",
                    layer.message, ")");
  }
  Write(
      Dump({{"event", "fallback"}, {"step", event.step}, {"layers", layers}}));
  PrintLine(event.layers.empty()
                ? absl::StrCat("step ", event.step,
                               ": all layers are preconditioned again")
                : absl::StrCat("step ", event.step, ": fall back: ", line));
}

void Reporter::OnWorld(const WorldEvent& event) {
  Write(Dump({{"event", "world"},
              {"restart_count", event.restart_count},
              {"ranks", event.ranks},
              {"rank", event.rank},
              {"start_step", event.start_step}}));
  PrintLine(absl::StrCat("restart ", event.restart_count, ": ", event.ranks,
                         " ranks go on from step ", event.start_step));
}

absl::Status Reporter::Done(const TrainingSummary& summary) {
  if (bar_open_) std::fputs("\n", options_.progress_out);
  bar_open_ = false;
  Write(Dump(DoneEvent(summary)));
  if (!write_failed_) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("events file '", options_.events, "' is incomplete"));
}

std::string SummaryLine(const TrainingSummary& summary) {
  std::string line = absl::StrFormat(
      "%s: %d steps in %.1f s, loss %.4f, accuracy %.4f", EndName(summary.end),
      summary.steps, Seconds(summary.elapsed), summary.last_loss,
      summary.final_accuracy);
  if (summary.steps_to_target) {
    absl::StrAppend(&line, absl::StrFormat(", target after %d steps and %.1f s",
                                           *summary.steps_to_target,
                                           Seconds(*summary.time_to_target)));
  }
  if (summary.layers > 0) {
    absl::StrAppend(
        &line, absl::StrFormat(
                   ", %d of %d layers preconditioned, %d steps with fallbacks, "
                   "waited %.1f s",
                   summary.layers_preconditioned, summary.layers,
                   summary.fallback_steps, Seconds(summary.waited)));
  }
  return line;
}

}  // namespace kronserve::worker
