// A whole job inside one test: a scheduler, servers that answer by a function,
// and ranks as threads. No network.

#ifndef KRONSERVE_WORKER_TESTING_FAKE_JOB_H_
#define KRONSERVE_WORKER_TESTING_FAKE_JOB_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/testing/fake_scheduler.h"
#include "client/testing/fake_transport.h"
#include "client/testing/faulty_transport.h"
#include "client/testing/messages.h"
#include "common/mutex.h"
#include "worker/collective/loopback/factory.h"
#include "worker/session_dependencies.h"
#include "worker/session_options.h"

namespace kronserve::worker::testing {

// Layer l is owned by server "a" if l is even, by "b" if odd.
class FakeJob {
 public:
  // `nodes`: [ranks], the node of each.
  FakeJob(std::vector<curvature::LayerShape> layers,
          std::vector<std::string> nodes)
      : layers_(std::move(layers)), nodes_(std::move(nodes)) {
    job_options_.set_step_budget_ms(2000);
    for (size_t rank = 0; rank < nodes_.size(); ++rank) {
      schedulers_.push_back(std::make_unique<client::testing::FakeScheduler>());
      schedulers_.back()->set_joins({Ready()});
    }
  }

  v1::JobOptions& job_options() { return job_options_; }
  client::testing::FakeTransport::Servers& servers() { return servers_; }
  client::testing::FaultyTransport::Faults& faults() { return faults_; }
  LoopbackHub& hub() { return hub_; }
  client::testing::FakeScheduler& scheduler(int rank) {
    return *schedulers_[rank];
  }

  SessionOptions Options(int rank) const {
    SessionOptions options;
    options.scheduler = "scheduler:1";
    options.job = "job";
    options.rank = rank;
    options.world_size = static_cast<int>(nodes_.size());
    options.incarnation = 100 + static_cast<uint64_t>(rank);
    options.node = nodes_[rank];
    options.join_timeout = absl::Seconds(20);
    options.device = "reference";
    options.job_options = job_options_;
    return options;
  }

  absl::StatusOr<std::unique_ptr<Session>> Join(
      int rank, const CommunicatorFactory& groups) {
    SessionDependencies dependencies;
    dependencies.connect = [this, rank](const std::string&) {
      client::ClientDependencies connected;
      connected.scheduler = std::make_unique<client::testing::SchedulerLink>(
          schedulers_[rank].get());
      connected.transport = std::make_unique<client::testing::FaultyTransport>(
          std::make_unique<client::testing::FakeTransport>(servers_), faults_);
      return connected;
    };
    return JoinWithDependencies(Options(rank), layers_, groups, dependencies);
  }
  absl::StatusOr<std::unique_ptr<Session>> Join(int rank) {
    return Join(rank, hub_.Factory());
  }

  // The assignment of `epoch`; the same owners in every epoch.
  v1::Assignment Assignment(uint64_t epoch) const {
    std::vector<client::testing::Owner> owners;
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      owners.push_back({layer % 2 == 0 ? "a" : "b", 0});
    }
    return client::testing::MakeAssignment(epoch, 1, owners);
  }

 private:
  v1::JoinJobResponse Ready() const {
    v1::JoinJobResponse ready;
    ready.set_state(v1::JOIN_STATE_READY);
    ready.set_plan_hash(99);
    ready.set_heartbeat_ms(2);
    ready.mutable_world()->set_version(1);
    for (size_t rank = 0; rank < nodes_.size(); ++rank) {
      v1::RankInfo* info = ready.mutable_world()->add_ranks();
      info->set_rank(static_cast<int>(rank));
      info->set_node(nodes_[rank]);
      info->set_incarnation(100 + rank);
    }
    *ready.mutable_assignment() = Assignment(1);
    return ready;
  }

  const std::vector<curvature::LayerShape> layers_;
  const std::vector<std::string> nodes_;
  v1::JobOptions job_options_ = DefaultJobOptions();
  client::testing::FakeTransport::Servers servers_;
  client::testing::FaultyTransport::Faults faults_;
  std::vector<std::unique_ptr<client::testing::FakeScheduler>> schedulers_;
  LoopbackHub hub_;
};

// What reached the servers, from any rank.
//
// Thread safety: thread-safe.
class Recorder {
 public:
  // Servers that record and then answer as FakeTransport's do.
  client::testing::FakeTransport::Servers Servers() {
    client::testing::FakeTransport::Servers servers;
    servers.push = [this](const client::PushCall& call,
                          v1::PushFactorsResponse* response) {
      {
        MutexLock lock(&mu_);
        pushes_.push_back(call);
      }
      return client::testing::FakeTransport::AcceptAll(call, response);
    };
    servers.precondition = [this](const client::PreconditionCall& call,
                                  std::vector<client::LayerAnswer>* answers) {
      {
        MutexLock lock(&mu_);
        ends_.push_back(call);
      }
      return client::testing::FakeTransport::Echo(call, answers);
    };
    return servers;
  }

  std::vector<client::PushCall> pushes() const {
    MutexLock lock(&mu_);
    return pushes_;
  }
  std::vector<client::PreconditionCall> ends() const {
    MutexLock lock(&mu_);
    return ends_;
  }

 private:
  mutable Mutex mu_;
  std::vector<client::PushCall> pushes_ ABSL_GUARDED_BY(mu_);
  std::vector<client::PreconditionCall> ends_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kronserve::worker::testing

#endif  // KRONSERVE_WORKER_TESTING_FAKE_JOB_H_
