#include "client/include/kronserve/client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/grpc_transport.h"
#include "client/silent_owners.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace kronserve::client {

ClientDependencies GrpcDependencies(const std::string& scheduler_address) {
  ClientDependencies dependencies;
  dependencies.scheduler = CreateGrpcSchedulerApi(scheduler_address);
  dependencies.transport = CreateGrpcTransport();
  return dependencies;
}

absl::StatusOr<std::unique_ptr<Client>> Client::Join(
    const v1::JoinJobRequest& request, absl::Duration timeout,
    ClientDependencies dependencies) {
  KRONSERVE_ASSIGN_OR_RETURN(
      v1::JoinJobResponse joined,
      JoinJob(*dependencies.scheduler, request, timeout, dependencies.timing));
  const bool has_layers = request.layers_size() > 0;
  const v1::Assignment first = joined.assignment();
  auto client = std::unique_ptr<Client>(
      new Client(request, std::move(joined), std::move(dependencies)));
  if (has_layers) {
    MutexLock lock(&client->mu_);
    KRONSERVE_RETURN_IF_ERROR(client->routing_.Adopt(first).status());
  }
  client->heartbeats_->Start();
  return client;
}

Client::Client(const v1::JoinJobRequest& request, v1::JoinJobResponse joined,
               ClientDependencies dependencies)
    : request_(request),
      joined_(std::move(joined)),
      rank_(RankOf(joined_.world(), request.incarnation())),
      budget_(absl::Milliseconds(request.options().step_budget_ms())),
      timing_(std::move(dependencies.timing)),
      scheduler_(std::move(dependencies.scheduler)),
      rendezvous_(scheduler_.get(), request.job(), joined_.world().version(),
                  timing_),
      routing_(request.job(), request.layers_size()),
      transport_(std::move(dependencies.transport)) {
  Heartbeats::Options options;
  if (joined_.heartbeat_ms() > 0) {
    options.interval = absl::Milliseconds(joined_.heartbeat_ms());
  }
  options.request = [this] { return NextHeartbeat(); };
  options.on_assignment = [this](const v1::Assignment& newer) {
    OnAssignment(newer);
  };
  options.on_world_lost = [this](const absl::Status& why) { OnWorldLost(why); };
  heartbeats_ = std::make_unique<Heartbeats>(scheduler_.get(), options);
}

Client::~Client() {
  heartbeats_.reset();
  transport_->Shutdown();
}

void Client::ReportStep(int64_t step) {
  MutexLock lock(&mu_);
  newest_step_ = std::max(newest_step_, step);
}

StepAnswer Client::RunStep(StepRequest request) {
  StepContext context;
  context.call.set_job(request_.job());
  context.call.set_world_version(joined_.world().version());
  context.call.set_rank(rank_);
  context.call.set_incarnation(request_.incarnation());
  context.budget = budget_;
  context.routing = &routing_;
  context.suspects = &suspects_;
  ReportStep(request.step);
  auto step = std::make_shared<StepCore>(std::move(request), context);
  {
    MutexLock lock(&mu_);
    if (!lost_.ok()) {
      step->Abandon(lost_);
      return step->TakeAnswer();
    }
    current_ = step;
  }
  Drive(step, [](StepCore* core, absl::Time now) { return core->Begin(now); });
  while (WaitForStep(step)) {
    Drive(step, [](StepCore* core, absl::Time now) { return core->Tick(now); });
  }
  MutexLock lock(&mu_);
  current_ = nullptr;
  return step->TakeAnswer();
}

bool Client::WaitForStep(const Step& step) {
  MutexLock lock(&mu_);
  if (!step->done()) {
    const absl::Duration time_left = step->next_wake() - timing_.clock->Now();
    changed_.WaitFor(&mu_, std::max(time_left, absl::ZeroDuration()));
  }
  return !step->done();
}

template <typename Input>
void Client::Drive(const Step& step, const Input& input) {
  StepEffects effects;
  std::vector<Suspects::Change> changes;
  {
    MutexLock lock(&mu_);
    effects = input(step.get(), timing_.clock->Now());
    changes = suspects_.TakeChanges();
  }
  changed_.NotifyAll();
  LogChanges(changes);
  Execute(step, std::move(effects));
}

void Client::Execute(const Step& step, StepEffects effects) {
  for (StepEffects::Push& push : effects.pushes) Send(step, std::move(push));
  for (StepEffects::Precondition& precondition : effects.preconditions) {
    Send(step, std::move(precondition));
  }
}

void Client::Send(const Step& step, StepEffects::Push push) {
  transport_->PushFactors(
      std::move(push.call),
      [this, step, id = push.id](const CallEnd& end,
                                 const v1::PushFactorsResponse& response) {
        Drive(step, [&](StepCore* core, absl::Time now) {
          return core->OnPushDone(id, end, response, now);
        });
      });
}

void Client::Send(const Step& step, StepEffects::Precondition precondition) {
  transport_->Precondition(
      std::move(precondition.call),
      [this, step, id = precondition.id](LayerAnswer answer) {
        Drive(step, [&](StepCore* core, absl::Time now) {
          return core->OnLayer(id, std::move(answer), now);
        });
      },
      [this, step, id = precondition.id](const CallEnd& end) {
        Drive(step, [&](StepCore* core, absl::Time now) {
          return core->OnPreconditionDone(id, end, now);
        });
      });
}

void Client::LogChanges(const std::vector<Suspects::Change>& changes) const {
  for (const Suspects::Change& change : changes) {
    if (change.suspect) {
      Log(LogLevel::kWarning,
          "server is suspect: its layers fall back, one probe a second",
          {{"job", request_.job()},
           {"rank", rank_},
           {"server", change.server},
           {"reason", change.reason}});
    } else {
      Log(LogLevel::kInfo, "server answers again",
          {{"job", request_.job()},
           {"rank", rank_},
           {"server", change.server}});
    }
  }
}

v1::RankHeartbeatRequest Client::NextHeartbeat() {
  v1::RankHeartbeatRequest heartbeat;
  heartbeat.set_job(request_.job());
  heartbeat.set_world_version(joined_.world().version());
  heartbeat.set_rank(rank_);
  heartbeat.set_incarnation(request_.incarnation());
  MutexLock lock(&mu_);
  heartbeat.set_step(newest_step_);
  heartbeat.set_epoch(routing_.held_epoch());
  return heartbeat;
}

void Client::OnAssignment(const v1::Assignment& assignment) {
  Step step;
  absl::StatusOr<bool> adopted = false;
  {
    MutexLock lock(&mu_);
    adopted = routing_.Adopt(assignment);
    step = current_;
  }
  if (!adopted.ok()) {
    Log(LogLevel::kError, "ignored an assignment of the scheduler",
        {{"job", request_.job()},
         {"error", std::string(adopted.status().message())}});
    return;
  }
  if (!*adopted) return;
  Log(LogLevel::kInfo, "holding a newer assignment",
      {{"job", request_.job()},
       {"rank", rank_},
       {"epoch", assignment.epoch()}});
  if (step == nullptr) return;
  Drive(step,
        [](StepCore* core, absl::Time now) { return core->OnAssignment(now); });
}

void Client::OnWorldLost(const absl::Status& why) {
  Step step;
  {
    MutexLock lock(&mu_);
    if (!lost_.ok()) return;
    lost_ = why;
    step = current_;
  }
  if (step != nullptr) {
    Drive(step, [&why](StepCore* core, absl::Time) {
      core->Abandon(why);
      return StepEffects();
    });
  }
  MutexLock lock(&lost_mu_);
  if (on_lost_) on_lost_();
}

void Client::OnLost(const std::function<void()>& callback) {
  {
    MutexLock lock(&lost_mu_);
    on_lost_ = callback;
  }
  // Told twice when it happens in between: aborting a group is idempotent.
  if (callback && !lost().ok()) callback();
}

absl::Status Client::lost() const {
  MutexLock lock(&mu_);
  return lost_;
}

std::vector<bool> Client::SilentOwners(int64_t step) const {
  MutexLock lock(&mu_);
  return client::SilentOwners(routing_, request_.layers_size(), step,
                              suspects_);
}

void Client::TakeVote(int64_t step, const std::vector<bool>& silent,
                      uint64_t agreed) {
  std::vector<Suspects::Change> changes;
  {
    MutexLock lock(&mu_);
    client::TakeVote(step, silent, agreed, timing_.clock->Now(),
                     {&routing_, &suspects_});
    changes = suspects_.TakeChanges();
  }
  LogChanges(changes);
}

uint64_t Client::held_epoch() const {
  MutexLock lock(&mu_);
  return routing_.held_epoch();
}

uint64_t Client::used_epoch() const {
  MutexLock lock(&mu_);
  return routing_.active_epoch();
}

absl::Status Client::Finish() {
  v1::FinishJobRequest finish;
  finish.set_job(request_.job());
  finish.set_world_version(joined_.world().version());
  return FinishJob(*scheduler_, finish, timing_);
}

}  // namespace kronserve::client
