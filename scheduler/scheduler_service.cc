#include "scheduler/scheduler_service.h"

#include <utility>

#include "common/grpc_leader.h"
#include "common/grpc_status.h"

namespace kronserve::scheduler {
namespace {

// The status of an answer; with who leads if it is not to be had just now.
grpc::Status Answer(const absl::Status& status,
                    grpc::CallbackServerContext* context) {
  const absl::optional<absl::Cord> leader = status.GetPayload(kLeaderPayload);
  if (leader.has_value()) {
    context->AddTrailingMetadata(kLeaderMetadata, std::string(*leader));
  }
  return ToGrpcStatus(status);
}

template <typename Response>
grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context,
                                 absl::StatusOr<Response> result,
                                 Response* response) {
  if (result.ok()) response->Swap(&*result);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(Answer(result.status(), context));
  return reactor;
}

// Answers when what `operation` decided about `job` is stored.
template <typename Response, typename Operation>
grpc::ServerUnaryReactor* FinishStored(grpc::CallbackServerContext* context,
                                       ActiveRuntime* runtime,
                                       const std::string& job,
                                       const Operation& operation,
                                       Response* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  runtime->RunStored(job, operation, [=](absl::StatusOr<Response> result) {
    if (result.ok()) response->Swap(&*result);
    reactor->Finish(Answer(result.status(), context));
  });
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* SchedulerService::RegisterServer(
    grpc::CallbackServerContext* context,
    const v1::RegisterServerRequest* request,
    v1::RegisterServerResponse* response) {
  return Finish(context,
                runtime_->Run([&](SchedulerCore* core, absl::Time now) {
                  return core->RegisterServer(*request, now);
                }),
                response);
}

grpc::ServerUnaryReactor* SchedulerService::ServerHeartbeat(
    grpc::CallbackServerContext* context,
    const v1::ServerHeartbeatRequest* request,
    v1::ServerHeartbeatResponse* response) {
  return Finish(context,
                runtime_->Run([&](SchedulerCore* core, absl::Time now) {
                  return core->ServerHeartbeat(*request, now);
                }),
                response);
}

grpc::ServerUnaryReactor* SchedulerService::JoinJob(
    grpc::CallbackServerContext* context, const v1::JoinJobRequest* request,
    v1::JoinJobResponse* response) {
  return Finish(context,
                runtime_->Run([&](SchedulerCore* core, absl::Time now) {
                  return core->JoinJob(*request, now);
                }),
                response);
}

grpc::ServerUnaryReactor* SchedulerService::RankHeartbeat(
    grpc::CallbackServerContext* context,
    const v1::RankHeartbeatRequest* request,
    v1::RankHeartbeatResponse* response) {
  return Finish(context,
                runtime_->Run([&](SchedulerCore* core, absl::Time now) {
                  return core->RankHeartbeat(*request, now);
                }),
                response);
}

grpc::ServerUnaryReactor* SchedulerService::FinishJob(
    grpc::CallbackServerContext* context, const v1::FinishJobRequest* request,
    v1::FinishJobResponse* response) {
  return FinishStored(
      context, runtime_, request->job(),
      [request](SchedulerCore* core, absl::Time now) {
        return core->FinishJob(*request, now);
      },
      response);
}

grpc::ServerUnaryReactor* SchedulerService::PutRendezvous(
    grpc::CallbackServerContext* context,
    const v1::PutRendezvousRequest* request,
    v1::PutRendezvousResponse* response) {
  return Finish(context, runtime_->Run([&](SchedulerCore* core, absl::Time) {
    return core->PutRendezvous(*request);
  }),
                response);
}

grpc::ServerUnaryReactor* SchedulerService::GetRendezvous(
    grpc::CallbackServerContext* context,
    const v1::GetRendezvousRequest* request,
    v1::GetRendezvousResponse* response) {
  return Finish(context, runtime_->Run([&](SchedulerCore* core, absl::Time) {
    return core->GetRendezvous(*request);
  }),
                response);
}

grpc::ServerUnaryReactor* SchedulerService::DrainServer(
    grpc::CallbackServerContext* context, const v1::DrainServerRequest* request,
    v1::DrainServerResponse* response) {
  return FinishStored(
      context, runtime_, "",
      [request](SchedulerCore* core, absl::Time now) {
        return core->DrainServer(*request, now);
      },
      response);
}

grpc::ServerUnaryReactor* SchedulerService::PinLayers(
    grpc::CallbackServerContext* context, const v1::PinLayersRequest* request,
    v1::PinLayersResponse* response) {
  return FinishStored(
      context, runtime_, request->job(),
      [request](SchedulerCore* core, absl::Time now) {
        return core->PinLayers(*request, now);
      },
      response);
}

grpc::ServerUnaryReactor* SchedulerService::CheckpointJob(
    grpc::CallbackServerContext* context,
    const v1::CheckpointJobRequest* request,
    v1::CheckpointJobResponse* response) {
  return FinishStored(
      context, runtime_, request->job(),
      [request](SchedulerCore* core, absl::Time now) {
        return core->CheckpointJob(*request, now);
      },
      response);
}

grpc::ServerUnaryReactor* SchedulerService::RestoreJob(
    grpc::CallbackServerContext* context, const v1::RestoreJobRequest* request,
    v1::RestoreJobResponse* response) {
  return FinishStored(
      context, runtime_, request->job(),
      [request](SchedulerCore* core, absl::Time now) {
        return core->RestoreJob(*request, now);
      },
      response);
}

grpc::ServerUnaryReactor* SchedulerService::GetStatus(
    grpc::CallbackServerContext* context, const v1::GetStatusRequest* request,
    v1::GetStatusResponse* response) {
  absl::StatusOr<v1::GetStatusResponse> status = runtime_->Run(
      [&](SchedulerCore* core,
          absl::Time now) -> absl::StatusOr<v1::GetStatusResponse> {
        return core->GetStatus(now);
      });
  if (!status.ok() && request->local()) status = self_;
  if (status.ok()) status->set_leader(runtime_->leader());
  return Finish(context, std::move(status), response);
}

}  // namespace kronserve::scheduler
