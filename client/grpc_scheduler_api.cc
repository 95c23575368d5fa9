#include <grpcpp/client_context.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/scheduler_api.h"
#include "common/grpc_leader.h"
#include "common/grpc_status.h"
#include "kronserve/v1/scheduler.grpc.pb.h"

namespace kronserve::client {
namespace {

using Stub = v1::Scheduler::Stub;

class GrpcSchedulerApi final : public SchedulerApi {
 public:
  explicit GrpcSchedulerApi(const std::string& addresses)
      : channels_(addresses) {}

  absl::StatusOr<v1::JoinJobResponse> JoinJob(const v1::JoinJobRequest& request,
                                              absl::Duration timeout) override {
    return Call<v1::JoinJobResponse>(&Stub::JoinJob, request, timeout);
  }
  absl::StatusOr<v1::RankHeartbeatResponse> RankHeartbeat(
      const v1::RankHeartbeatRequest& request,
      absl::Duration timeout) override {
    return Call<v1::RankHeartbeatResponse>(&Stub::RankHeartbeat, request,
                                           timeout);
  }
  absl::StatusOr<v1::FinishJobResponse> FinishJob(
      const v1::FinishJobRequest& request, absl::Duration timeout) override {
    return Call<v1::FinishJobResponse>(&Stub::FinishJob, request, timeout);
  }
  absl::StatusOr<v1::PutRendezvousResponse> PutRendezvous(
      const v1::PutRendezvousRequest& request,
      absl::Duration timeout) override {
    return Call<v1::PutRendezvousResponse>(&Stub::PutRendezvous, request,
                                           timeout);
  }
  absl::StatusOr<v1::GetRendezvousResponse> GetRendezvous(
      const v1::GetRendezvousRequest& request,
      absl::Duration timeout) override {
    return Call<v1::GetRendezvousResponse>(&Stub::GetRendezvous, request,
                                           timeout);
  }
  absl::StatusOr<v1::DrainServerResponse> DrainServer(
      const v1::DrainServerRequest& request, absl::Duration timeout) override {
    return Call<v1::DrainServerResponse>(&Stub::DrainServer, request, timeout);
  }
  absl::StatusOr<v1::PinLayersResponse> PinLayers(
      const v1::PinLayersRequest& request, absl::Duration timeout) override {
    return Call<v1::PinLayersResponse>(&Stub::PinLayers, request, timeout);
  }
  absl::StatusOr<v1::CheckpointJobResponse> CheckpointJob(
      const v1::CheckpointJobRequest& request,
      absl::Duration timeout) override {
    return Call<v1::CheckpointJobResponse>(&Stub::CheckpointJob, request,
                                           timeout);
  }
  absl::StatusOr<v1::RestoreJobResponse> RestoreJob(
      const v1::RestoreJobRequest& request, absl::Duration timeout) override {
    return Call<v1::RestoreJobResponse>(&Stub::RestoreJob, request, timeout);
  }

 private:
  template <typename Response, typename Request>
  absl::StatusOr<Response> Call(
      grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                   Response*),
      const Request& request, absl::Duration timeout) {
    const auto deadline = absl::ToChronoTime(absl::Now() + timeout);
    Response response;
    const LeaderChannels::Outcome outcome =
        channels_.Call([&](const auto& channel, grpc::ClientContext* context) {
          context->set_deadline(deadline);
          Stub stub(channel);
          return (stub.*method)(context, request, &response);
        });
    if (outcome.status.ok()) return response;
    return FromGrpcStatus(outcome.status,
                          absl::StrCat("scheduler at ", outcome.address));
  }

  LeaderChannels channels_;
};

}  // namespace

std::unique_ptr<SchedulerApi> CreateGrpcSchedulerApi(
    const std::string& addresses) {
  return std::make_unique<GrpcSchedulerApi>(addresses);
}

}  // namespace kronserve::client
