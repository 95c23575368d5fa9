#include "server/call_status_service.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/time/clock.h"
#include "common/grpc_status.h"
#include "server/job_state.h"

namespace kronserve::server {

grpc::Status ToCallStatus(const absl::Status& status,
                          grpc::CallbackServerContext* context) {
  for (const auto& [payload, key] :
       {std::pair(kAssignmentPayload, "kronserve-assignment-bin"),
        std::pair(kElsewherePayload, "kronserve-elsewhere-bin")}) {
    if (const auto attached = status.GetPayload(payload)) {
      context->AddTrailingMetadata(key, std::string(*attached));
    }
  }
  return ToGrpcStatus(status);
}

absl::Duration TimeLeft(const grpc::CallbackServerContext& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) {
    return absl::InfiniteDuration();
  }
  return std::max(absl::FromChrono(deadline) - absl::Now(),
                  absl::ZeroDuration());
}

}  // namespace kronserve::server
