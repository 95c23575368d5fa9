#include "server/server_control_service.h"

#include <utility>

#include "common/grpc_status.h"

namespace kronserve::server {

grpc::ServerUnaryReactor* ServerControlService::ConfigureJob(
    grpc::CallbackServerContext* context,
    const v1::ConfigureJobRequest* request,
    v1::ConfigureJobResponse* response) {
  auto result = runtime_->ConfigureJob(*request);
  if (result.ok()) response->Swap(&*result);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(result.status()));
  return reactor;
}

grpc::ServerUnaryReactor* ServerControlService::DropJob(
    grpc::CallbackServerContext* context, const v1::DropJobRequest* request,
    v1::DropJobResponse* /*response*/) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(runtime_->DropJob(*request)));
  return reactor;
}

grpc::ServerUnaryReactor* ServerControlService::WriteCheckpoint(
    grpc::CallbackServerContext* context,
    const v1::WriteCheckpointRequest* request,
    v1::WriteCheckpointResponse* response) {
  auto result = runtime_->WriteCheckpoint(*request);
  if (result.ok()) response->Swap(&*result);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(result.status()));
  return reactor;
}

grpc::ServerUnaryReactor* ServerControlService::CommitCheckpoint(
    grpc::CallbackServerContext* context,
    const v1::CommitCheckpointRequest* request,
    v1::CommitCheckpointResponse* /*response*/) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  runtime_->CommitCheckpoint(*request, [reactor](const absl::Status& status) {
    reactor->Finish(ToGrpcStatus(status));
  });
  return reactor;
}

grpc::ServerUnaryReactor* ServerControlService::GetServerStatus(
    grpc::CallbackServerContext* context,
    const v1::GetServerStatusRequest* /*request*/,
    v1::GetServerStatusResponse* response) {
  *response = runtime_->Status();
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace kronserve::server
