#include "client/cli/server_command.h"

#include <grpcpp/client_context.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "client/cli/table.h"
#include "common/grpc_channel.h"
#include "common/grpc_status.h"
#include "kronserve/v1/preconditioner.grpc.pb.h"

namespace kronserve::client {
namespace {

using nlohmann::json;

// By reflection: a counter that is added to the message is shown at once.
std::vector<std::pair<std::string, int64_t>> Counters(
    const v1::ServerCounters& counters) {
  std::vector<std::pair<std::string, int64_t>> pairs;
  const auto* descriptor = counters.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* field = descriptor->field(i);
    pairs.emplace_back(field->name(),
                       counters.GetReflection()->GetInt64(counters, field));
  }
  return pairs;
}

// LAYER_PHASE_OWNED -> "owned".
std::string PhaseWord(v1::LayerPhase phase) {
  if (!v1::LayerPhase_IsValid(phase)) return "unknown";
  const std::string name = v1::LayerPhase_Name(phase);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "LAYER_PHASE_"));
}

}  // namespace

void AddServerCommandOptions(OptionSet* set, ServerCommandOptions* options) {
  set->Add("address", &options->address, "host:port of the server");
  set->Require("address");
  set->Add("json", &options->json, "print one JSON object instead of tables");
  set->Add("timeout", &options->timeout, "how long to wait for the answer");
}

absl::StatusOr<v1::GetServerStatusResponse> FetchServerStatus(
    const ServerCommandOptions& options) {
  const auto channel = CreateChannel(options.address);
  const auto stub = v1::ServerControl::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + options.timeout));
  v1::GetServerStatusResponse response;
  const absl::Status status = FromGrpcStatus(
      stub->GetServerStatus(&context, v1::GetServerStatusRequest(), &response),
      absl::StrCat("server at ", options.address));
  if (status.ok()) return response;
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
    return absl::UnavailableError(absl::StrCat(
        "server at ", options.address, " cannot be reached within ",
        absl::FormatDuration(options.timeout), " (", status.message(), ")"));
  }
  return status;
}

std::string RenderServerText(const v1::GetServerStatusResponse& status,
                             bool colors) {
  std::string text = absl::StrCat("Server ", status.name(), ", incarnation ",
                                  status.incarnation(), ", queue ",
                                  status.refresh_queue_depth(), "\n\n");
  if (status.layers().empty()) {
    absl::StrAppend(&text, "It holds no layer.\n");
  } else {
    std::vector<std::vector<Cell>> rows = {
        {"JOB", "LAYER", "PHASE", "UPDATES", "CLOSED", "VERSION", "OPEN"}};
    for (const v1::LayerStatus& layer : status.layers()) {
      rows.push_back(
          {layer.job(), layer.layer(), PhaseWord(layer.phase()),
           absl::StrCat(layer.updates()), absl::StrCat(layer.closed_through()),
           absl::StrCat(layer.version()), absl::StrCat(layer.open_rounds())});
    }
    absl::StrAppend(&text, FormatTable(rows, colors));
  }
  std::vector<std::vector<Cell>> rows = {{"COUNTER", "SINCE ITS START"}};
  for (const auto& [name, value] : Counters(status.counters())) {
    if (value == 0) continue;
    rows.push_back(
        {absl::StrReplaceAll(name, {{"_", " "}}), absl::StrCat(value)});
  }
  if (rows.size() > 1) {
    absl::StrAppend(&text, "\n", FormatTable(rows, colors));
  }
  return text;
}

std::string RenderServerJson(const v1::GetServerStatusResponse& status) {
  json layers = json::array();
  for (const v1::LayerStatus& layer : status.layers()) {
    layers.push_back({{"job", layer.job()},
                      {"name", layer.layer()},
                      {"phase", PhaseWord(layer.phase())},
                      {"updates", layer.updates()},
                      {"closed_through", layer.closed_through()},
                      {"version", layer.version()},
                      {"open_rounds", layer.open_rounds()}});
  }
  json counters = json::object();
  for (const auto& [name, value] : Counters(status.counters())) {
    counters[name] = value;
  }
  const json document = {
      {"name", status.name()},
      {"incarnation", absl::StrCat(status.incarnation())},
      {"predicted_bytes", status.predicted_bytes()},
      {"memory_limit_bytes", status.memory_limit_bytes()},
      {"staged_bytes", status.staged_bytes()},
      {"refresh_queue_depth", status.refresh_queue_depth()},
      {"refresh_busy_seconds", status.refresh_busy_seconds()},
      {"counters", std::move(counters)},
      {"layers", std::move(layers)},
  };
  // Names are any bytes; what is no UTF-8 is replaced, not an exception.
  return absl::StrCat(
      document.dump(2, ' ', false, json::error_handler_t::replace), "\n");
}

}  // namespace kronserve::client
