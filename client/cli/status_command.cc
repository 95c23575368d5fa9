#include "client/cli/status_command.h"

#include <grpcpp/client_context.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/grpc_leader.h"
#include "common/grpc_status.h"
#include "kronserve/v1/scheduler.grpc.pb.h"

namespace kronserve::client {

void AddStatusOptions(OptionSet* set, StatusOptions* options) {
  set->Add("scheduler", &options->scheduler,
           "host:port of the scheduler; of several: comma-separated");
  set->Add("json", &options->json, "print one JSON object instead of tables");
  set->Add("timeout", &options->timeout, "how long to wait for the answer");
}

absl::StatusOr<v1::GetStatusResponse> FetchStatus(
    const StatusOptions& options) {
  LeaderChannels channels(options.scheduler);
  const auto deadline = absl::ToChronoTime(absl::Now() + options.timeout);
  v1::GetStatusResponse response;
  const LeaderChannels::Outcome outcome =
      channels.Call([&](const auto& channel, grpc::ClientContext* context) {
        context->set_deadline(deadline);
        v1::Scheduler::Stub stub(channel);
        return stub.GetStatus(context, v1::GetStatusRequest(), &response);
      });
  absl::Status status = FromGrpcStatus(
      outcome.status, absl::StrCat("scheduler at ", outcome.address));
  if (absl::IsDeadlineExceeded(status)) {
    status = absl::UnavailableError(status.message());
  }
  if (status.ok()) return response;
  return WithHint(status, options.scheduler, options.timeout);
}

absl::Status WithHint(const absl::Status& status, const std::string& scheduler,
                      absl::Duration timeout) {
  if (!absl::IsUnavailable(status)) return status;
  return absl::UnavailableError(absl::StrCat(
      "scheduler at ", scheduler, " cannot be reached within ",
      absl::FormatDuration(timeout),
      ": is it running there (kronserve-scheduler --listen=", scheduler,
      "), or is --scheduler=HOST:PORT another? (", status.message(), ")"));
}

}  // namespace kronserve::client
