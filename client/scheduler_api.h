// The scheduler's calls that ranks and kronctl make, whatever carries them.
//
// Layer: client. May include proto/ and common/.

#ifndef KRONSERVE_CLIENT_SCHEDULER_API_H_
#define KRONSERVE_CLIENT_SCHEDULER_API_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kronserve/v1/scheduler.pb.h"

namespace kronserve::client {

// One method per RPC; each blocks up to `timeout`, and fails at once with
// kUnavailable when nobody listens.
//
// Thread safety: thread-safe.
// Errors:        those of the RPC in scheduler.proto, and kDeadlineExceeded.
class SchedulerApi {
 public:
  virtual ~SchedulerApi() = default;

  virtual absl::StatusOr<v1::JoinJobResponse> JoinJob(
      const v1::JoinJobRequest& request, absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::RankHeartbeatResponse> RankHeartbeat(
      const v1::RankHeartbeatRequest& request, absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::FinishJobResponse> FinishJob(
      const v1::FinishJobRequest& request, absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::PutRendezvousResponse> PutRendezvous(
      const v1::PutRendezvousRequest& request, absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::GetRendezvousResponse> GetRendezvous(
      const v1::GetRendezvousRequest& request, absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::DrainServerResponse> DrainServer(
      const v1::DrainServerRequest& request, absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::PinLayersResponse> PinLayers(
      const v1::PinLayersRequest& request, absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::CheckpointJobResponse> CheckpointJob(
      const v1::CheckpointJobRequest& request, absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::RestoreJobResponse> RestoreJob(
      const v1::RestoreJobRequest& request, absl::Duration timeout) = 0;
};

// Speaks gRPC to the scheduler at `addresses` (host:port; of several,
// comma-separated, to the one that leads). Connects lazily.
std::unique_ptr<SchedulerApi> CreateGrpcSchedulerApi(
    const std::string& addresses);

}  // namespace kronserve::client

#endif  // KRONSERVE_CLIENT_SCHEDULER_API_H_
