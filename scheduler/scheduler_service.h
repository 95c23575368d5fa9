// gRPC adapter of the scheduler: each method calls the core and converts the
// status. What people decide is answered when it is stored. While another
// scheduler leads, each says where that one is.
//
// Layer: scheduler. May include common/, proto/ and placement/.

#ifndef KRONSERVE_SCHEDULER_SCHEDULER_SERVICE_H_
#define KRONSERVE_SCHEDULER_SCHEDULER_SERVICE_H_

#include <utility>

#include "kronserve/v1/scheduler.grpc.pb.h"
#include "scheduler/active_runtime.h"

namespace kronserve::scheduler {

// Thread safety: thread-safe. No method blocks: gRPC's callback threads are
//                few.
// Lifetime:      `runtime` outlives it.
class SchedulerService final : public v1::Scheduler::CallbackService {
 public:
  //   self  what GetStatus() says of a scheduler that does not lead.
  SchedulerService(ActiveRuntime* runtime, v1::GetStatusResponse self)
      : runtime_(runtime), self_(std::move(self)) {}

  grpc::ServerUnaryReactor* RegisterServer(
      grpc::CallbackServerContext* context,
      const v1::RegisterServerRequest* request,
      v1::RegisterServerResponse* response) override;
  grpc::ServerUnaryReactor* ServerHeartbeat(
      grpc::CallbackServerContext* context,
      const v1::ServerHeartbeatRequest* request,
      v1::ServerHeartbeatResponse* response) override;
  grpc::ServerUnaryReactor* JoinJob(grpc::CallbackServerContext* context,
                                    const v1::JoinJobRequest* request,
                                    v1::JoinJobResponse* response) override;
  grpc::ServerUnaryReactor* RankHeartbeat(
      grpc::CallbackServerContext* context,
      const v1::RankHeartbeatRequest* request,
      v1::RankHeartbeatResponse* response) override;
  grpc::ServerUnaryReactor* FinishJob(grpc::CallbackServerContext* context,
                                      const v1::FinishJobRequest* request,
                                      v1::FinishJobResponse* response) override;
  grpc::ServerUnaryReactor* PutRendezvous(
      grpc::CallbackServerContext* context,
      const v1::PutRendezvousRequest* request,
      v1::PutRendezvousResponse* response) override;
  grpc::ServerUnaryReactor* GetRendezvous(
      grpc::CallbackServerContext* context,
      const v1::GetRendezvousRequest* request,
      v1::GetRendezvousResponse* response) override;
  grpc::ServerUnaryReactor* DrainServer(
      grpc::CallbackServerContext* context,
      const v1::DrainServerRequest* request,
      v1::DrainServerResponse* response) override;
  grpc::ServerUnaryReactor* PinLayers(grpc::CallbackServerContext* context,
                                      const v1::PinLayersRequest* request,
                                      v1::PinLayersResponse* response) override;
  grpc::ServerUnaryReactor* CheckpointJob(
      grpc::CallbackServerContext* context,
      const v1::CheckpointJobRequest* request,
      v1::CheckpointJobResponse* response) override;
  grpc::ServerUnaryReactor* RestoreJob(
      grpc::CallbackServerContext* context,
      const v1::RestoreJobRequest* request,
      v1::RestoreJobResponse* response) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;

 private:
  ActiveRuntime* const runtime_;
  const v1::GetStatusResponse self_;
};

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_SCHEDULER_SERVICE_H_
