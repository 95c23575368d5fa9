#include "client/cli/control_commands.h"

#include <grpcpp/client_context.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/grpc_channel.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "kronserve/v1/scheduler.grpc.pb.h"

namespace kronserve::client {
namespace {

// Between two questions for how far it is.
constexpr absl::Duration kPoll = absl::Milliseconds(200);

// The calls of one command, on one channel.
class Scheduler {
 public:
  explicit Scheduler(const ControlOptions& options)
      : options_(options),
        stub_(v1::Scheduler::NewStub(CreateChannel(options.scheduler))) {}

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(
      grpc::Status (v1::Scheduler::Stub::*method)(grpc::ClientContext*,
                                                  const Request&, Response*),
      const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + options_.timeout));
    Response response;
    const absl::Status status =
        FromGrpcStatus((stub_.get()->*method)(&context, request, &response),
                       absl::StrCat("scheduler at ", options_.scheduler));
    if (status.ok()) return response;
    if (absl::IsDeadlineExceeded(status)) {
      return absl::UnavailableError(status.message());
    }
    return status;
  }

 private:
  const ControlOptions& options_;
  const std::unique_ptr<v1::Scheduler::Stub> stub_;
};

// Calls `ask` until its answer is `done` or options.wait is over; without a
// wait, once.
template <typename Ask, typename Done>
auto AskUntil(const ControlOptions& options, Ask ask, Done done)
    -> decltype(ask()) {
  const absl::Time end = absl::Now() + options.wait;
  while (true) {
    auto answer = ask();
    if (!answer.ok() || done(*answer) || absl::Now() >= end) return answer;
    absl::SleepFor(kPoll);
  }
}

// `line`, as an error when there was a wait and it is over.
absl::StatusOr<std::string> NotYet(const ControlOptions& options,
                                   const std::string& line) {
  if (options.wait == absl::ZeroDuration()) return line;
  return absl::DeadlineExceededError(
      absl::StrCat(line, " after ", absl::FormatDuration(options.wait)));
}

std::string Layers(int64_t count) {
  return absl::StrCat(count, count == 1 ? " layer" : " layers");
}

void AddCommon(OptionSet* set, ControlOptions* options) {
  set->Add("scheduler", &options->scheduler, "host:port of the scheduler");
  set->Add("timeout", &options->timeout, "how long to wait for an answer");
}

void AddJob(OptionSet* set, ControlOptions* options) {
  set->Add("job", &options->job, "name of the job");
  set->Require("job");
}

}  // namespace

void AddDrainOptions(OptionSet* set, ControlOptions* options) {
  AddCommon(set, options);
  set->Add("server", &options->server, "name of the server");
  set->Require("server");
  set->Add("undo", &options->undo, "let layers be placed on it again");
  set->Add("wait", &options->wait,
           "wait so long until its layers have moved; without it, only ask");
}

void AddPinOptions(OptionSet* set, ControlOptions* options) {
  AddCommon(set, options);
  AddJob(set, options);
  set->Add("layers", &options->layers,
           "names with commas; without it, all of the job");
  set->Add("server", &options->server, "where they move to and stay");
  set->Add("undo", &options->undo, "untie them");
  set->Check([options]() -> std::string {
    return options->server.empty() == options->undo
               ? ""
               : "give either server or undo";
  });
}

void AddCheckpointOptions(OptionSet* set, ControlOptions* options) {
  options->wait = absl::Minutes(1);
  AddCommon(set, options);
  AddJob(set, options);
  set->Add("id", &options->id,
           "name of the checkpoint: 1 to 64 of letters, digits and '._-'");
  set->Require("id");
  set->Add("step", &options->step,
           "cut after this step; -1: as soon as possible",
           OptionSet::IntRange{-1, int64_t{1} << 53});
  set->Add("wait", &options->wait, "how long to wait until it is written");
}

void AddRestoreOptions(OptionSet* set, ControlOptions* options) {
  AddCommon(set, options);
  AddJob(set, options);
  set->Add("id", &options->id, "name of a complete checkpoint of the job");
  set->Add("undo", &options->undo, "the next start restores nothing");
  set->Check([options]() -> std::string {
    return options->id.empty() == options->undo ? "" : "give either id or undo";
  });
}

absl::StatusOr<std::string> Drain(const ControlOptions& options) {
  Scheduler scheduler(options);
  v1::DrainServerRequest request;
  request.set_server(options.server);
  request.set_undo(options.undo);
  KRONSERVE_ASSIGN_OR_RETURN(
      const v1::DrainServerResponse drain,
      AskUntil(
          options,
          [&] {
            return scheduler.Call(&v1::Scheduler::Stub::DrainServer, request);
          },
          [&](const v1::DrainServerResponse& answer) {
            return options.undo || answer.layers_left() == 0;
          }));
  if (options.undo) {
    return absl::StrCat("server '", options.server,
                        "' is used again; placement decides when");
  }
  if (drain.layers_left() == 0) {
    return absl::StrCat("server '", options.server,
                        "' holds no layer: it can be stopped");
  }
  return NotYet(options, absl::StrCat(Layers(drain.layers_left()), " of '",
                                      options.server, "' still to move"));
}

absl::StatusOr<std::string> Pin(const ControlOptions& options) {
  Scheduler scheduler(options);
  v1::PinLayersRequest request;
  request.set_job(options.job);
  request.set_server(options.server);
  for (const auto name :
       absl::StrSplit(options.layers, ',', absl::SkipEmpty())) {
    request.add_layers(std::string(name));
  }
  KRONSERVE_ASSIGN_OR_RETURN(
      const v1::PinLayersResponse pin,
      scheduler.Call(&v1::Scheduler::Stub::PinLayers, request));
  if (options.undo) return std::string("the layers are no longer tied");
  return absl::StrCat(Layers(pin.layers_moving()), " on the way to '",
                      options.server, "'");
}

absl::StatusOr<std::string> Checkpoint(const ControlOptions& options) {
  Scheduler scheduler(options);
  v1::CheckpointJobRequest request;
  request.set_job(options.job);
  request.set_id(options.id);
  if (options.step >= 0) request.set_step(options.step);
  KRONSERVE_ASSIGN_OR_RETURN(
      const v1::CheckpointJobResponse checkpoint,
      AskUntil(
          options,
          [&] {
            return scheduler.Call(&v1::Scheduler::Stub::CheckpointJob, request);
          },
          [](const v1::CheckpointJobResponse& answer) {
            return answer.state() == v1::CHECKPOINT_STATE_COMPLETE;
          }));
  const std::string name =
      absl::StrCat("checkpoint '", options.id, "' of job '", options.job, "'");
  if (checkpoint.state() == v1::CHECKPOINT_STATE_COMPLETE) {
    return absl::StrCat(name, " is complete: step ", checkpoint.step(), ", ",
                        Layers(checkpoint.layers()));
  }
  return NotYet(options, absl::StrCat(name, " is being written: ",
                                      checkpoint.layers_written(), " of ",
                                      Layers(checkpoint.layers())));
}

absl::StatusOr<std::string> Restore(const ControlOptions& options) {
  Scheduler scheduler(options);
  v1::RestoreJobRequest request;
  request.set_job(options.job);
  request.set_id(options.id);
  KRONSERVE_RETURN_IF_ERROR(
      scheduler.Call(&v1::Scheduler::Stub::RestoreJob, request).status());
  if (options.undo) {
    return absl::StrCat("the next start of job '", options.job,
                        "' restores nothing");
  }
  return absl::StrCat("the next start of job '", options.job,
                      "' begins with checkpoint '", options.id, "'");
}

}  // namespace kronserve::client
