#include "server/scheduler_link.h"

#include <grpcpp/client_context.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/clock.h"
#include "common/grpc_leader.h"
#include "common/grpc_status.h"
#include "common/log.h"
#include "kronserve/v1/scheduler.grpc.pb.h"

namespace kronserve::server {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(2);
constexpr absl::Duration kFirstDelay = absl::Milliseconds(100);
constexpr absl::Duration kLongestDelay = absl::Seconds(1);
constexpr absl::Duration kDefaultPeriod = absl::Seconds(1);
constexpr absl::Duration kShortestPeriod = absl::Milliseconds(10);
// Between heartbeats that callers cause, however many there are.
constexpr absl::Duration kSoon = absl::Milliseconds(50);

}  // namespace

struct SchedulerLink::Rpc {
  explicit Rpc(const std::string& addresses) : channels(addresses) {}

  // Calls the scheduler that leads; Cancel() can end that.
  template <typename Request, typename Response>
  absl::Status Call(grpc::Status (v1::Scheduler::Stub::*method)(
                        grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) {
    const auto deadline = std::chrono::system_clock::now() +
                          absl::ToChronoMilliseconds(kCallTimeout);
    const LeaderChannels::Outcome outcome =
        channels.Call([&](const auto& channel, grpc::ClientContext* call) {
          call->set_deadline(deadline);
          {
            MutexLock lock(&mu);
            if (cancelled) return grpc::Status(grpc::Status::CANCELLED);
            current = call;
          }
          v1::Scheduler::Stub stub(channel);
          grpc::Status status = (stub.*method)(call, request, response);
          MutexLock lock(&mu);
          current = nullptr;
          return status;
        });
    return FromGrpcStatus(outcome.status, "scheduler at " + outcome.address);
  }

  void Cancel() {
    MutexLock lock(&mu);
    cancelled = true;
    if (current != nullptr) current->TryCancel();
  }

  LeaderChannels channels;
  Mutex mu;
  grpc::ClientContext* current ABSL_GUARDED_BY(mu) = nullptr;
  bool cancelled ABSL_GUARDED_BY(mu) = false;
};

SchedulerLink::SchedulerLink(LinkOptions options, LinkCallbacks callbacks)
    : options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      rpc_(std::make_unique<Rpc>(options_.scheduler)),
      backoff_(kFirstDelay, kLongestDelay, options_.incarnation),
      heartbeat_period_(kDefaultPeriod) {}

SchedulerLink::~SchedulerLink() { Stop(); }

void SchedulerLink::Start(const std::string& address) {
  address_ = address;
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "scheduler-link");
    Run();
  });
}

void SchedulerLink::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  rpc_->Cancel();
  thread_.join();
}

void SchedulerLink::HeartbeatSoon() {
  {
    MutexLock lock(&mu_);
    soon_ = true;
  }
  changed_.NotifyAll();
}

bool SchedulerLink::is_registered() const {
  MutexLock lock(&mu_);
  return registered_;
}

void SchedulerLink::Run() {
  while (true) {
    const absl::Duration delay = Exchange();
    WaitFor(delay);
    MutexLock lock(&mu_);
    if (stopping_) return;
  }
}

void SchedulerLink::WaitFor(absl::Duration delay) {
  const absl::Time start = SteadyClock().Now();
  MutexLock lock(&mu_);
  while (!stopping_) {
    const absl::Duration wait = soon_ ? std::min(delay, kSoon) : delay;
    const absl::Duration left = start + wait - SteadyClock().Now();
    if (left <= absl::ZeroDuration()) break;
    changed_.WaitFor(&mu_, left);
  }
  soon_ = false;
}

absl::Duration SchedulerLink::Exchange() {
  const bool registering = !is_registered();
  const absl::Status status = registering ? Register() : Heartbeat();
  Report(status);
  if (!status.ok()) {
    const bool unknown = absl::IsNotFound(status) || absl::IsAborted(status);
    if (!registering && unknown) {
      MutexLock lock(&mu_);
      registered_ = false;
      return absl::ZeroDuration();
    }
    return backoff_.Next();
  }
  backoff_.Reset();
  if (registering) {
    {
      MutexLock lock(&mu_);
      registered_ = true;
    }
    if (!std::exchange(was_registered_, true)) callbacks_.registered();
  }
  return heartbeat_period_;
}

absl::Status SchedulerLink::Register() {
  v1::ServerHeartbeatRequest state;
  uint64_t term_seen = 0;
  callbacks_.fill(/*registering=*/true, &state, &term_seen);
  v1::RegisterServerRequest request;
  request.set_name(options_.name);
  request.set_address(address_);
  request.set_incarnation(options_.incarnation);
  request.set_memory_bytes(options_.memory_bytes);
  *request.mutable_cost() = options_.cost;
  *request.mutable_held() = state.held();
  request.set_term_seen(term_seen);
  request.set_refresh_threads(options_.refresh_threads);
  v1::RegisterServerResponse response;
  absl::Status status =
      rpc_->Call(&v1::Scheduler::Stub::RegisterServer, request, &response);
  if (status.ok()) {
    if (response.heartbeat_ms() > 0) {
      heartbeat_period_ = std::max(absl::Milliseconds(response.heartbeat_ms()),
                                   kShortestPeriod);
    }
    callbacks_.term(response.term());
  }
  return status;
}

absl::Status SchedulerLink::Heartbeat() {
  v1::ServerHeartbeatRequest request;
  uint64_t term_seen = 0;
  callbacks_.fill(/*registering=*/false, &request, &term_seen);
  request.set_name(options_.name);
  request.set_incarnation(options_.incarnation);
  v1::ServerHeartbeatResponse response;
  absl::Status status =
      rpc_->Call(&v1::Scheduler::Stub::ServerHeartbeat, request, &response);
  if (status.ok()) {
    callbacks_.term(response.term());
    callbacks_.heartbeat(response);
  }
  return status;
}

// Logs a change of state once, not every retry.
void SchedulerLink::Report(const absl::Status& status) {
  const std::string fault(status.ok() ? "" : status.message());
  if (fault == reported_) return;
  if (absl::IsCancelled(status)) return;  // The process ends.
  if (status.ok()) {
    Log(LogLevel::kInfo, "the scheduler answers again",
        {{"scheduler", options_.scheduler}});
  } else {
    Log(LogLevel::kWarning, "no answer from the scheduler, serving on",
        {{"fault", fault}});
  }
  reported_ = fault;
}

}  // namespace kronserve::server
