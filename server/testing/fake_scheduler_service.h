// A scheduler that records what servers tell it.

#ifndef KRONSERVE_SERVER_TESTING_FAKE_SCHEDULER_SERVICE_H_
#define KRONSERVE_SERVER_TESTING_FAKE_SCHEDULER_SERVICE_H_

#include <grpcpp/server_context.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/clock.h"
#include "common/grpc_server.h"
#include "common/mutex.h"
#include "kronserve/v1/scheduler.grpc.pb.h"

namespace kronserve::server::testing {

// Thread safety: thread-safe.
class FakeSchedulerService final : public v1::Scheduler::Service {
 public:
  struct Seen {
    std::vector<v1::RegisterServerRequest> registrations;
    std::vector<v1::ServerHeartbeatRequest> heartbeats;
  };

  grpc::Status RegisterServer(grpc::ServerContext*,
                              const v1::RegisterServerRequest* request,
                              v1::RegisterServerResponse* response) override {
    MutexLock lock(&mu_);
    seen_.registrations.push_back(*request);
    changed_.NotifyAll();
    response->set_term(9);
    response->set_heartbeat_ms(heartbeat_ms_);
    response->set_lease_ms(5 * heartbeat_ms_);
    return registration_;
  }

  grpc::Status ServerHeartbeat(grpc::ServerContext*,
                               const v1::ServerHeartbeatRequest* request,
                               v1::ServerHeartbeatResponse* response) override {
    MutexLock lock(&mu_);
    seen_.heartbeats.push_back(*request);
    changed_.NotifyAll();
    response->set_term(9);
    response->set_drained(drained_);
    for (int i = 0; i < 2; ++i) response->add_peers();
    return std::exchange(heartbeat_, grpc::Status::OK);
  }

  // Answers of all registrations from now on, and of the next heartbeat.
  void SetRegistration(const grpc::Status& status) {
    MutexLock lock(&mu_);
    registration_ = status;
  }
  void SetNextHeartbeat(const grpc::Status& status) {
    MutexLock lock(&mu_);
    heartbeat_ = status;
  }
  void SetDrained() {
    MutexLock lock(&mu_);
    drained_ = true;
  }
  void SetHeartbeatMs(int64_t heartbeat_ms) {
    MutexLock lock(&mu_);
    heartbeat_ms_ = heartbeat_ms;
  }

  // Waits up to ten seconds for `condition`.
  bool Await(const std::function<bool(const Seen&)>& condition) {
    const absl::Time end = SteadyClock().Now() + absl::Seconds(10);
    MutexLock lock(&mu_);
    while (!condition(seen_)) {
      const absl::Duration left = end - SteadyClock().Now();
      if (left <= absl::ZeroDuration()) return false;
      changed_.WaitFor(&mu_, left);
    }
    return true;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  Seen seen_ ABSL_GUARDED_BY(mu_);
  grpc::Status registration_ ABSL_GUARDED_BY(mu_);
  grpc::Status heartbeat_ ABSL_GUARDED_BY(mu_);
  bool drained_ ABSL_GUARDED_BY(mu_) = false;
  int64_t heartbeat_ms_ ABSL_GUARDED_BY(mu_) = 10;
};

}  // namespace kronserve::server::testing

#endif  // KRONSERVE_SERVER_TESTING_FAKE_SCHEDULER_SERVICE_H_
