#include "client/scheduler_client.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/backoff.h"
#include "common/log.h"

namespace kronserve::client {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(5);
constexpr absl::Duration kControlTimeout = absl::Seconds(10);

bool Unreachable(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// A deadline and the waiting times towards it.
class Patience {
 public:
  Patience(const Timing& timing, absl::Duration timeout, uint64_t seed)
      : timing_(timing),
        deadline_(timing.clock->Now() + timeout),
        backoff_(absl::Milliseconds(10), absl::Milliseconds(250), seed) {}

  absl::Duration call_timeout() const {
    return std::min(kCallTimeout, deadline_ - timing_.clock->Now());
  }

  // Waits before the next try; false when there is no time for one.
  bool Wait() {
    const absl::Duration delay = backoff_.Next();
    if (timing_.clock->Now() + delay >= deadline_) return false;
    timing_.wait(delay);
    return true;
  }

 private:
  const Timing& timing_;
  const absl::Time deadline_;
  Backoff backoff_;
};

absl::Status CheckJoined(const v1::JoinJobRequest& request,
                         const v1::JoinJobResponse& response) {
  const v1::World& world = response.world();
  const int least =
      request.min_ranks() > 0 ? request.min_ranks() : request.world_size();
  bool fits = world.version() >= 1 && world.ranks_size() >= least &&
              world.ranks_size() <= request.world_size() &&
              RankOf(world, request.incarnation()) >= 0;
  for (int rank = 0; fits && rank < world.ranks_size(); ++rank) {
    fits =
        world.ranks(rank).rank() == rank && !world.ranks(rank).node().empty();
  }
  const int layers = request.layers_size();
  if (layers > 0 && response.assignment().owners_size() != layers) fits = false;
  if (fits) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "the scheduler's answer does not fit job '", request.job(), "': world ",
      world.version(), " of ", world.ranks_size(), " ranks and ",
      response.assignment().owners_size(), " owners, asked for ",
      request.world_size(), " ranks, with incarnation ", request.incarnation(),
      " as one of them, and ", layers, " layers"));
}

absl::Status NotReady(const v1::JoinJobRequest& request, absl::Duration timeout,
                      const std::vector<std::string>& waiting_for,
                      const absl::Status& last) {
  const std::string who =
      absl::StrCat("job '", request.job(), "', rank ", request.rank(),
                   ": not ready within ", absl::FormatDuration(timeout), "; ");
  if (Unreachable(last)) {
    return absl::UnavailableError(
        absl::StrCat(who, std::string(last.message())));
  }
  return absl::DeadlineExceededError(absl::StrCat(
      who, "the scheduler waits for: ", absl::StrJoin(waiting_for, "; ")));
}

}  // namespace

absl::StatusOr<v1::JoinJobResponse> JoinJob(SchedulerApi& api,
                                            const v1::JoinJobRequest& request,
                                            absl::Duration timeout,
                                            const Timing& timing) {
  Patience patience(timing, timeout, request.incarnation());
  std::vector<std::string> waiting_for;
  absl::Status last;
  do {
    auto response = api.JoinJob(request, patience.call_timeout());
    last = response.status();
    if (!last.ok() && !Unreachable(last)) return last;
    if (!last.ok()) continue;
    if (response->state() == v1::JOIN_STATE_READY) {
      last = CheckJoined(request, *response);
      if (!last.ok()) return last;
      return response;
    }
    waiting_for.assign(response->waiting_for().begin(),
                       response->waiting_for().end());
  } while (patience.Wait());
  return NotReady(request, timeout, waiting_for, last);
}

absl::Status RendezvousBoard::Put(const std::string& key,
                                  const std::string& value) {
  v1::PutRendezvousRequest request;
  request.set_job(job_);
  request.set_world_version(world_version_);
  request.set_key(key);
  request.set_value(value);
  Patience patience(timing_, kControlTimeout, 1);
  absl::Status status;
  do {
    status = api_->PutRendezvous(request, patience.call_timeout()).status();
    if (!Unreachable(status)) return status;
  } while (patience.Wait());
  return status;
}

absl::StatusOr<std::vector<std::string>> RendezvousBoard::Get(
    const std::vector<std::string>& keys, absl::Duration timeout) {
  std::map<std::string, std::string> found;
  std::vector<std::string> missing = keys;
  Patience patience(timing_, timeout, 1);
  do {
    v1::GetRendezvousRequest request;
    request.set_job(job_);
    request.set_world_version(world_version_);
    for (const std::string& key : missing) request.add_keys(key);
    auto response = api_->GetRendezvous(request, patience.call_timeout());
    if (!response.ok() && !Unreachable(response.status())) {
      return response.status();
    }
    if (!response.ok()) continue;
    for (const v1::RendezvousEntry& entry : response->entries()) {
      found[entry.key()] = entry.value();
    }
    missing.erase(
        std::remove_if(missing.begin(), missing.end(),
                       [&](const auto& key) { return found.count(key) > 0; }),
        missing.end());
  } while (!missing.empty() && patience.Wait());
  if (!missing.empty()) {
    return absl::DeadlineExceededError(absl::StrCat(
        "rendezvous of job '", job_, "': no ", absl::StrJoin(missing, ", "),
        " within ", absl::FormatDuration(timeout)));
  }
  std::vector<std::string> values;
  values.reserve(keys.size());
  for (const std::string& key : keys) values.push_back(found[key]);
  return values;
}

int RankOf(const v1::World& world, uint64_t incarnation) {
  for (const v1::RankInfo& rank : world.ranks()) {
    if (rank.incarnation() == incarnation) return rank.rank();
  }
  return -1;
}

absl::Status FinishJob(SchedulerApi& api, const v1::FinishJobRequest& request,
                       const Timing& timing) {
  Patience patience(timing, kControlTimeout, 1);
  absl::Status status;
  do {
    status = api.FinishJob(request, patience.call_timeout()).status();
    if (absl::IsNotFound(status)) return absl::OkStatus();
    if (!Unreachable(status)) return status;
  } while (patience.Wait());
  return status;
}

Heartbeats::Heartbeats(SchedulerApi* api, Options options)
    : api_(api), options_(std::move(options)) {}

Heartbeats::~Heartbeats() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void Heartbeats::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Heartbeats::Run() {
  for (;;) {
    // A failure was logged; the next beat is the retry.
    (void)Beat();
    MutexLock lock(&mu_);
    if (!stopping_) changed_.WaitFor(&mu_, options_.interval);
    if (stopping_) return;
  }
}

absl::Status Heartbeats::Beat() {
  const v1::RankHeartbeatRequest request = options_.request();
  const auto response = api_->RankHeartbeat(request, options_.interval);
  absl::StatusCode before;
  {
    MutexLock lock(&mu_);
    before = std::exchange(last_, response.status().code());
  }
  if (before != response.status().code()) {
    if (response.ok()) {
      Log(LogLevel::kInfo, "the scheduler answers again",
          {{"job", request.job()}, {"rank", request.rank()}});
    } else {
      Log(LogLevel::kWarning,
          "heartbeat failed; training goes on with the assignment at hand",
          {{"job", request.job()},
           {"rank", request.rank()},
           {"error", std::string(response.status().message())}});
    }
  }
  if (response.ok() && response->has_assignment()) {
    options_.on_assignment(response->assignment());
  }
  if (absl::IsAborted(response.status()) && options_.on_world_lost) {
    options_.on_world_lost(response.status());
  }
  return response.status();
}

}  // namespace kronserve::client
