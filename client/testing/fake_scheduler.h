// A scheduler inside the test, without a network.

#ifndef KRONSERVE_CLIENT_TESTING_FAKE_SCHEDULER_H_
#define KRONSERVE_CLIENT_TESTING_FAKE_SCHEDULER_H_

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "client/scheduler_api.h"
#include "common/mutex.h"

namespace kronserve::client::testing {

// Answers what the test has set; ranks share one through a SchedulerLink each.
//
// Thread safety: thread-safe.
class FakeScheduler final : public SchedulerApi {
 public:
  // The answers to the next JoinJob calls; the last one is repeated.
  void set_joins(std::vector<absl::StatusOr<v1::JoinJobResponse>> joins) {
    MutexLock lock(&mu_);
    joins_ = std::move(joins);
    next_join_ = 0;
  }
  // Fails every call but JoinJob; OK: serves again.
  void set_status(absl::Status status) {
    MutexLock lock(&mu_);
    status_ = std::move(status);
  }
  // What the next heartbeats bring, if it is newer than what the rank holds.
  void set_assignment(v1::Assignment assignment) {
    MutexLock lock(&mu_);
    assignment_ = std::move(assignment);
  }
  std::vector<v1::JoinJobRequest> join_requests() const {
    MutexLock lock(&mu_);
    return join_requests_;
  }
  std::vector<v1::RankHeartbeatRequest> heartbeats() const {
    MutexLock lock(&mu_);
    return heartbeats_;
  }
  // Waits until `count` heartbeats came; false after `timeout`.
  bool WaitForHeartbeats(size_t count, absl::Duration timeout) {
    MutexLock lock(&mu_);
    const absl::Time deadline = absl::Now() + timeout;
    while (heartbeats_.size() < count && absl::Now() < deadline) {
      changed_.WaitFor(&mu_, deadline - absl::Now());
    }
    return heartbeats_.size() >= count;
  }
  int finishes() const {
    MutexLock lock(&mu_);
    return finishes_;
  }

  absl::StatusOr<v1::JoinJobResponse> JoinJob(const v1::JoinJobRequest& request,
                                              absl::Duration) override {
    MutexLock lock(&mu_);
    join_requests_.push_back(request);
    if (joins_.empty()) return absl::UnavailableError("no answer is set");
    const size_t index = std::min(next_join_++, joins_.size() - 1);
    return joins_[index];
  }
  absl::StatusOr<v1::RankHeartbeatResponse> RankHeartbeat(
      const v1::RankHeartbeatRequest& request, absl::Duration) override {
    MutexLock lock(&mu_);
    heartbeats_.push_back(request);
    changed_.NotifyAll();
    if (!status_.ok()) return status_;
    v1::RankHeartbeatResponse response;
    if (assignment_.epoch() > request.epoch()) {
      *response.mutable_assignment() = assignment_;
    }
    return response;
  }
  absl::StatusOr<v1::FinishJobResponse> FinishJob(const v1::FinishJobRequest&,
                                                  absl::Duration) override {
    MutexLock lock(&mu_);
    if (!status_.ok()) return status_;
    ++finishes_;
    return v1::FinishJobResponse();
  }
  absl::StatusOr<v1::PutRendezvousResponse> PutRendezvous(
      const v1::PutRendezvousRequest& request, absl::Duration) override {
    MutexLock lock(&mu_);
    if (!status_.ok()) return status_;
    board_[request.key()] = request.value();
    return v1::PutRendezvousResponse();
  }
  absl::StatusOr<v1::GetRendezvousResponse> GetRendezvous(
      const v1::GetRendezvousRequest& request, absl::Duration) override {
    MutexLock lock(&mu_);
    if (!status_.ok()) return status_;
    v1::GetRendezvousResponse response;
    for (const std::string& key : request.keys()) {
      const auto found = board_.find(key);
      if (found == board_.end()) continue;
      v1::RendezvousEntry* entry = response.add_entries();
      entry->set_key(key);
      entry->set_value(found->second);
    }
    return response;
  }
  absl::StatusOr<v1::DrainServerResponse> DrainServer(
      const v1::DrainServerRequest& request, absl::Duration) override {
    MutexLock lock(&mu_);
    return drain_server_.Answer(request);
  }
  absl::StatusOr<v1::PinLayersResponse> PinLayers(
      const v1::PinLayersRequest& request, absl::Duration) override {
    MutexLock lock(&mu_);
    return pin_layers_.Answer(request);
  }
  absl::StatusOr<v1::CheckpointJobResponse> CheckpointJob(
      const v1::CheckpointJobRequest& request, absl::Duration) override {
    MutexLock lock(&mu_);
    return checkpoint_job_.Answer(request);
  }
  absl::StatusOr<v1::RestoreJobResponse> RestoreJob(
      const v1::RestoreJobRequest& request, absl::Duration) override {
    MutexLock lock(&mu_);
    return restore_job_.Answer(request);
  }

  // What the calls of kronctl bring: each answer once, the last for ever.
  template <typename Request, typename Response>
  struct Script {
    absl::StatusOr<Response> Answer(const Request& request) {
      requests.push_back(request);
      if (answers.empty()) return absl::UnavailableError("no answer is set");
      return answers[std::min(requests.size(), answers.size()) - 1];
    }
    std::vector<Request> requests;
    std::vector<absl::StatusOr<Response>> answers;
  };
  Script<v1::DrainServerRequest, v1::DrainServerResponse>& drain_server() {
    MutexLock lock(&mu_);
    return drain_server_;
  }
  Script<v1::PinLayersRequest, v1::PinLayersResponse>& pin_layers() {
    MutexLock lock(&mu_);
    return pin_layers_;
  }
  Script<v1::CheckpointJobRequest, v1::CheckpointJobResponse>&
  checkpoint_job() {
    MutexLock lock(&mu_);
    return checkpoint_job_;
  }
  Script<v1::RestoreJobRequest, v1::RestoreJobResponse>& restore_job() {
    MutexLock lock(&mu_);
    return restore_job_;
  }

 private:
  mutable Mutex mu_;
  CondVar changed_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  size_t next_join_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<absl::StatusOr<v1::JoinJobResponse>> joins_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::JoinJobRequest> join_requests_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::RankHeartbeatRequest> heartbeats_ ABSL_GUARDED_BY(mu_);
  v1::Assignment assignment_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::string> board_ ABSL_GUARDED_BY(mu_);
  int finishes_ ABSL_GUARDED_BY(mu_) = 0;
  Script<v1::DrainServerRequest, v1::DrainServerResponse> drain_server_
      ABSL_GUARDED_BY(mu_);
  Script<v1::PinLayersRequest, v1::PinLayersResponse> pin_layers_
      ABSL_GUARDED_BY(mu_);
  Script<v1::CheckpointJobRequest, v1::CheckpointJobResponse> checkpoint_job_
      ABSL_GUARDED_BY(mu_);
  Script<v1::RestoreJobRequest, v1::RestoreJobResponse> restore_job_
      ABSL_GUARDED_BY(mu_);
};

// One rank's end of a scheduler that lives longer.
class SchedulerLink final : public SchedulerApi {
 public:
  explicit SchedulerLink(SchedulerApi* scheduler) : scheduler_(scheduler) {}

  absl::StatusOr<v1::JoinJobResponse> JoinJob(const v1::JoinJobRequest& request,
                                              absl::Duration timeout) override {
    return scheduler_->JoinJob(request, timeout);
  }
  absl::StatusOr<v1::RankHeartbeatResponse> RankHeartbeat(
      const v1::RankHeartbeatRequest& request,
      absl::Duration timeout) override {
    return scheduler_->RankHeartbeat(request, timeout);
  }
  absl::StatusOr<v1::FinishJobResponse> FinishJob(
      const v1::FinishJobRequest& request, absl::Duration timeout) override {
    return scheduler_->FinishJob(request, timeout);
  }
  absl::StatusOr<v1::PutRendezvousResponse> PutRendezvous(
      const v1::PutRendezvousRequest& request,
      absl::Duration timeout) override {
    return scheduler_->PutRendezvous(request, timeout);
  }
  absl::StatusOr<v1::GetRendezvousResponse> GetRendezvous(
      const v1::GetRendezvousRequest& request,
      absl::Duration timeout) override {
    return scheduler_->GetRendezvous(request, timeout);
  }
  absl::StatusOr<v1::DrainServerResponse> DrainServer(
      const v1::DrainServerRequest& request, absl::Duration timeout) override {
    return scheduler_->DrainServer(request, timeout);
  }
  absl::StatusOr<v1::PinLayersResponse> PinLayers(
      const v1::PinLayersRequest& request, absl::Duration timeout) override {
    return scheduler_->PinLayers(request, timeout);
  }
  absl::StatusOr<v1::CheckpointJobResponse> CheckpointJob(
      const v1::CheckpointJobRequest& request,
      absl::Duration timeout) override {
    return scheduler_->CheckpointJob(request, timeout);
  }
  absl::StatusOr<v1::RestoreJobResponse> RestoreJob(
      const v1::RestoreJobRequest& request, absl::Duration timeout) override {
    return scheduler_->RestoreJob(request, timeout);
  }

 private:
  SchedulerApi* const scheduler_;
};

}  // namespace kronserve::client::testing

#endif  // KRONSERVE_CLIENT_TESTING_FAKE_SCHEDULER_H_
