#include "client/cli/change_commands.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"

namespace kronserve::client {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(300);

absl::Status WrongUse(const std::string& what, const char* usage) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": kronctl ", usage));
}

std::string Plural(int64_t count, const std::string& word) {
  return absl::StrCat(count, " ", word, count == 1 ? "" : "s");
}

void AddCommon(OptionSet* set, ChangeOptions* options) {
  set->Add("scheduler", &options->scheduler, "host:port of the scheduler");
  set->Add("timeout", &options->timeout, "how long to wait for an answer");
}

void AddWait(OptionSet* set, ChangeOptions* options, const char* help) {
  set->Add("wait", &options->wait, help);
  set->Add("wait-timeout", &options->wait_timeout,
           "with wait: how long at most; what was begun goes on");
}

// Asks by `ask` until `is_done(answer)`, through times in which nobody
// answers.
template <typename Ask, typename IsDone>
auto PollUntil(absl::Duration timeout, const Timing& timing, const Ask& ask,
               const IsDone& is_done) -> decltype(ask()) {
  const absl::Time deadline = timing.clock->Now() + timeout;
  for (;;) {
    auto answer = ask();
    if (answer.ok() ? is_done(*answer)
                    : !absl::IsUnavailable(answer.status()) &&
                          !absl::IsDeadlineExceeded(answer.status())) {
      return answer;
    }
    if (timing.clock->Now() + kPoll >= deadline) return answer;
    timing.wait(kPoll);
  }
}

absl::Status NotInTime(const ChangeOptions& options, const std::string& state) {
  return absl::DeadlineExceededError(
      absl::StrCat("not done within ",
                   absl::FormatDuration(options.wait_timeout), ": ", state));
}

// --- drain ---

constexpr char kDrainUse[] = "drain SERVER [--undo] [--wait]";

absl::StatusOr<std::string> Drain(const ChangeOptions& options,
                                  const CommandContext& context) {
  if (options.names.size() != 1 || (options.undo && options.wait)) {
    return WrongUse("one server is to be named", kDrainUse);
  }
  v1::DrainServerRequest request;
  request.set_server(options.names[0]);
  request.set_undo(options.undo);
  const auto ask = [&] {
    return context.scheduler->DrainServer(request, options.timeout);
  };
  KRONSERVE_ASSIGN_OR_RETURN(v1::DrainServerResponse answer, ask());
  const std::string name = absl::StrCat("server '", request.server(), "'");
  if (options.undo) return absl::StrCat(name, " takes layers again\n");
  if (options.wait && answer.layers_left() > 0) {
    const int64_t all = answer.layers_left();
    Progress progress(absl::StrCat("layers have left ", name),
                      context.progress_out, context.terminal);
    KRONSERVE_ASSIGN_OR_RETURN(
        answer, PollUntil(options.wait_timeout, context.timing, ask,
                          [&](const v1::DrainServerResponse& now) {
                            const int64_t left = now.layers_left();
                            progress.Show(std::max(all - left, int64_t{0}),
                                          all);
                            return left == 0;
                          }));
  }
  if (answer.layers_left() == 0) {
    return absl::StrCat(name, " has no layers: it may be stopped\n");
  }
  const std::string state = absl::StrCat(
      name, " drains, ", Plural(answer.layers_left(), "layer"), " to move");
  if (options.wait) return NotInTime(options, state);
  return absl::StrCat(state, "; 'kronctl status' shows how far it is\n");
}

// --- pin ---

constexpr char kPinUse[] = "pin JOB LAYER... | --all  --server=S | --undo";

absl::StatusOr<std::string> Pin(const ChangeOptions& options,
                                const CommandContext& context) {
  if (options.names.empty() || (options.names.size() > 1) == options.all) {
    return WrongUse("a job and its layers, or --all, are to be named", kPinUse);
  }
  if (options.server.empty() != options.undo) {
    return WrongUse("either --server=S or --undo is needed", kPinUse);
  }
  v1::PinLayersRequest request;
  request.set_job(options.names[0]);
  request.set_server(options.server);
  for (size_t i = 1; i < options.names.size(); ++i) {
    request.add_layers(options.names[i]);
  }
  KRONSERVE_ASSIGN_OR_RETURN(
      const v1::PinLayersResponse answer,
      context.scheduler->PinLayers(request, options.timeout));
  const std::string what = absl::StrCat(
      options.all ? "all layers" : Plural(request.layers_size(), "layer"),
      " of job '", request.job(), "'");
  if (options.undo) return absl::StrCat(what, ": not pinned any more\n");
  return absl::StrCat(what, ": pinned to server '", request.server(), "', ",
                      answer.layers_moving(), " to move\n");
}

// --- checkpoint ---

constexpr char kCheckpointUse[] =
    "checkpoint JOB [--id=ID] [--step=N] [--wait]";

absl::StatusOr<std::string> Checkpoint(const ChangeOptions& options,
                                       const CommandContext& context) {
  if (options.names.size() != 1) {
    return WrongUse("one job is to be named", kCheckpointUse);
  }
  v1::CheckpointJobRequest request;
  request.set_job(options.names[0]);
  request.set_id(!options.id.empty() ? options.id
                                     : absl::FormatTime("manual-%Y%m%d-%H%M%S",
                                                        context.wall_time,
                                                        absl::UTCTimeZone()));
  if (options.step >= 0) request.set_step(options.step);
  const auto ask = [&] {
    return context.scheduler->CheckpointJob(request, options.timeout);
  };
  // A job that has just begun asks for patience.
  KRONSERVE_ASSIGN_OR_RETURN(
      v1::CheckpointJobResponse answer,
      PollUntil(options.timeout, context.timing, ask,
                [](const v1::CheckpointJobResponse&) { return true; }));
  const std::string name = absl::StrCat("checkpoint '", request.id(),
                                        "' of job '", request.job(), "'");
  const auto complete = [](const v1::CheckpointJobResponse& now) {
    return now.state() == v1::CHECKPOINT_STATE_COMPLETE;
  };
  if (options.wait && !complete(answer)) {
    Progress progress(absl::StrCat("layers of ", name, " are written"),
                      context.progress_out, context.terminal);
    KRONSERVE_ASSIGN_OR_RETURN(
        answer, PollUntil(options.wait_timeout, context.timing, ask,
                          [&](const v1::CheckpointJobResponse& now) {
                            progress.Show(now.layers_written(), now.layers());
                            return complete(now);
                          }));
  }
  const std::string cut = absl::StrCat("cut after step ", answer.step(), ", ",
                                       answer.layers_written(), " of ",
                                       Plural(answer.layers(), "layer"));
  if (complete(answer)) {
    return absl::StrCat(name, " is complete: ", cut, "\n");
  }
  const std::string state = absl::StrCat(name, " is being written: ", cut);
  if (options.wait) return NotInTime(options, state);
  return absl::StrCat(state, "; see 'kronctl checkpoint ", request.job(),
                      " --id=", request.id(), " --wait'\n");
}

// --- restore ---

constexpr char kRestoreUse[] = "restore JOB ID | restore JOB --undo";

absl::StatusOr<std::string> Restore(const ChangeOptions& options,
                                    const CommandContext& context) {
  if (options.names.size() != (options.undo ? 1 : 2)) {
    return WrongUse("a job and a checkpoint are to be named", kRestoreUse);
  }
  v1::RestoreJobRequest request;
  request.set_job(options.names[0]);
  if (!options.undo) request.set_id(options.names[1]);
  KRONSERVE_RETURN_IF_ERROR(
      context.scheduler->RestoreJob(request, options.timeout).status());
  if (options.undo) {
    return absl::StrCat("job '", request.job(),
                        "': its next world restores no checkpoint\n");
  }
  return absl::StrCat(
      "job '", request.job(), "': its next world starts from checkpoint '",
      request.id(), "'; start its ranks anew, at the step after the cut\n");
}

void AddDrainOptions(OptionSet* set, ChangeOptions* options) {
  AddCommon(set, options);
  set->Add("undo", &options->undo, "let the server be used again");
  AddWait(set, options, "until the server has no layers; shows how far it is");
}

void AddPinOptions(OptionSet* set, ChangeOptions* options) {
  AddCommon(set, options);
  set->Add("server", &options->server, "where the layers belong");
  set->Add("all", &options->all, "all layers of the job");
  set->Add("undo", &options->undo, "let the scheduler place them again");
}

void AddCheckpointOptions(OptionSet* set, ChangeOptions* options) {
  AddCommon(set, options);
  set->Add("id", &options->id,
           "name of the checkpoint, 1 to 64 of A-Z a-z 0-9 . _ -; empty: "
           "manual-DATE-TIME. An id that is being written is only asked after");
  set->Add("step", &options->step, "cut after this step; -1: as soon as may be",
           {-1, std::numeric_limits<int64_t>::max()});
  AddWait(set, options, "until it is complete; shows how far it is");
}

void AddRestoreOptions(OptionSet* set, ChangeOptions* options) {
  AddCommon(set, options);
  set->Add("undo", &options->undo, "restore nothing after all");
}

constexpr ChangeCommand kCommands[] = {
    {"drain",
     "SERVER: moves all layers away from a server, so that it can be stopped "
     "without loss, and places none on it. Example: kronctl drain s1 --wait",
     &AddDrainOptions, &Drain},
    {"pin",
     "JOB LAYER...: ties layers to a server; they move there and stay while "
     "it lives. Example: kronctl pin mnist fc1 fc2 --server=s1",
     &AddPinOptions, &Pin},
    {"checkpoint",
     "JOB: saves the state of all layers of a job, cut after one step. "
     "Example: kronctl checkpoint mnist --id=before-lr-drop --wait",
     &AddCheckpointOptions, &Checkpoint},
    {"restore",
     "JOB ID: lets the next world of a job start from a checkpoint of it. "
     "Example: kronctl restore mnist before-lr-drop",
     &AddRestoreOptions, &Restore},
};

}  // namespace

const ChangeCommand* FindChangeCommand(const std::string& name) {
  for (const ChangeCommand& command : kCommands) {
    if (name == command.name) return &command;
  }
  return nullptr;
}

std::vector<std::string> TakeNames(std::vector<std::string>* words) {
  const auto first_option = std::find_if(
      words->begin(), words->end(),
      [](const std::string& word) { return absl::StartsWith(word, "-"); });
  std::vector<std::string> names(words->begin(), first_option);
  words->erase(words->begin(), first_option);
  return names;
}

}  // namespace kronserve::client
