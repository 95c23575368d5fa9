#include "tests/simulation/server_node.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/job_state.h"
#include "server/tasks.h"
#include "tests/simulation/scheduler_node.h"

namespace kronserve::simulation {
namespace {

constexpr absl::Duration kHeartbeat = absl::Seconds(1);
constexpr absl::Duration kLinkTimeout = absl::Seconds(2);
constexpr absl::Duration kSoon = absl::Milliseconds(50);
constexpr absl::Duration kTimerPeriod = absl::Milliseconds(5);
constexpr absl::Duration kMostMargin = absl::Milliseconds(100);
constexpr int64_t kMemory = int64_t{1} << 24;

server::CoreOptions OptionsOf(const ClusterPlan& plan, const std::string& name,
                              uint64_t incarnation) {
  server::CoreOptions options;
  options.has_checkpoints = plan.checkpoints;
  options.checkpoint_interval = plan.checkpoint_interval;
  options.name = name;
  options.incarnation = incarnation;
  options.memory_limit_bytes = kMemory;
  options.staging_limit_bytes = kMemory;
  return options;
}

client::CallEnd EndOf(const absl::Status& status) {
  client::CallEnd end;
  end.status = status;
  if (const auto payload = status.GetPayload(server::kAssignmentPayload)) {
    v1::Assignment newer;
    if (newer.ParseFromString(std::string(*payload))) end.newer = newer;
  }
  if (const auto payload = status.GetPayload(server::kElsewherePayload)) {
    v1::LayersElsewhere elsewhere;
    elsewhere.ParseFromString(std::string(*payload));
    end.elsewhere.assign(elsewhere.layers().begin(), elsewhere.layers().end());
  }
  return end;
}

server::CheckedTensor Check(const Tensor& tensor, uint64_t checksum) {
  if (tensor == nullptr) return {};
  return {tensor, server::CheckTensor(*tensor, checksum)};
}

}  // namespace

std::string DescribeConfig(const v1::JobConfig& config) {
  std::string text = absl::StrCat("world ", config.world().version(),
                                  " from step ", config.world().start_step(),
                                  ", epoch ", config.assignment().epoch());
  for (const v1::LayerOwner& owner : config.assignment().owners()) {
    absl::StrAppend(&text, ", l", owner.layer(), ": ",
                    owner.server().empty() ? "nobody" : owner.server(),
                    " from ", owner.from_step());
    if (!owner.source().empty()) absl::StrAppend(&text, " of ", owner.source());
  }
  return text;
}

ServerNode::ServerNode(Environment* env, SimulatedCheckpoints* checkpoints,
                       const std::string& name, uint64_t incarnation)
    : Endpoint(std::make_shared<Process>(name)),
      env_(env),
      checkpoints_(checkpoints),
      incarnation_(incarnation),
      core_(OptionsOf(env->plan, name, incarnation)),
      backoff_(absl::Milliseconds(100), absl::Seconds(1), incarnation) {
  env_->network.Listen(name, this);
  env_->Say(name, [&] { return absl::StrCat("starts as ", incarnation); });
  Exchange();
}

void ServerNode::Input(const std::function<void(server::Effects*)>& input) {
  server::Effects effects;
  input(&effects);
  Dispatch(std::move(effects));
  env_->checks.progress.OnServer(*this);
  env_->checks.contributions.OnServer(*this);
  ArmTimer();
}

void ServerNode::Dispatch(server::Effects effects) {
  for (server::PreconditionTask& task : effects.preconditions) {
    RunPrecondition(std::move(task));
  }
  for (server::MergeTask& task : effects.merges) RunMerge(std::move(task));
  for (server::RefreshTask& task : effects.refreshes) {
    RunRefresh(std::move(task));
  }
  for (server::TransferTask& task : effects.transfers) {
    RunTransfer(std::move(task));
  }
  for (server::RestoreTask& task : effects.restores) {
    RunRestore(std::move(task));
  }
  for (const server::CheckpointTask& task : effects.checkpoints) {
    RunCheckpoint(task);
  }
  for (server::Reply& reply : effects.replies) SendReply(std::move(reply));
  for (const std::string& warning : effects.warnings) {
    env_->Say(process()->name(), [&] { return warning; });
  }
  if (!effects.behind || soon_) return;
  soon_ = true;
  if (!exchanging_) ExchangeAfter(kSoon);
}

absl::Duration ServerNode::TaskTime(int times) {
  return env_->random.Between(absl::Microseconds(10),
                              times * env_->plan.longest_task);
}

void ServerNode::RunMerge(server::MergeTask task) {
  env_->checks.contributions.OnMergeBegins(*this, task, env_->now());
  env_->queue.After(TaskTime(1), process(), [this, task = std::move(task)] {
    auto result = server::RunMerge(task.input);
    Input([&](server::Effects* effects) {
      env_->checks.contributions.BeforeMergeEnds(*this, task);
      core_.FinishMerge(task.key, std::move(result), env_->now(), effects);
      env_->checks.contributions.OnMergeEnds(*this, task);
    });
  });
}

void ServerNode::RunRefresh(server::RefreshTask task) {
  const int times = env_->random.Chance(0.2) ? 10 : 2;
  env_->queue.After(TaskTime(times), process(), [this, task = std::move(task)] {
    auto result = server::RunRefresh(env_->tools, task.input);
    Input([&](server::Effects* effects) {
      core_.FinishRefresh(task.key, std::move(result), env_->now(), effects);
    });
  });
}

void ServerNode::RunPrecondition(server::PreconditionTask task) {
  env_->queue.After(TaskTime(1), process(), [this, task = std::move(task)] {
    auto result = server::RunPrecondition(env_->tools, task.input);
    Input([&](server::Effects* effects) {
      core_.FinishPrecondition(task.request, std::move(result), effects);
    });
  });
}

void ServerNode::ArmTimer() {
  const absl::Time next = core_.NextDeadline();
  if (next == absl::InfiniteFuture() || next >= timer_) return;
  timer_ = std::max(next, env_->now()) +
           env_->random.Between(absl::ZeroDuration(), kTimerPeriod);
  env_->queue.At(timer_, process(), [this, due = timer_] {
    if (due != timer_) return;
    timer_ = absl::InfiniteFuture();
    Input(
        [this](server::Effects* effects) { core_.Tick(env_->now(), effects); });
  });
}

void ServerNode::Push(const CallPtr& call, const client::PushCall& push,
                      const client::Transport::OnPushDone& done) {
  absl::StatusOr<server::PushTicket> ticket;
  Input([&](server::Effects* effects) {
    ticket = core_.BeginPush(push.header, env_->now(), effects);
  });
  env_->Say(process()->name(), [&] {
    return absl::StrCat("<- ", call->from, " push of step ",
                        push.header.call().step(), ", epoch ",
                        push.header.call().epoch(), ": ",
                        ticket.status().ToString());
  });
  if (!ticket.ok()) {
    env_->network.End(call, [done, end = EndOf(ticket.status())] {
      done(end, v1::PushFactorsResponse());
    });
    return;
  }
  const auto staged = std::make_shared<bool>(false);
  call->on_gone = [this, staged, ticket = *ticket] {
    if (!std::exchange(*staged, true)) core_.AbandonPush(ticket);
  };
  // Its chunks come, and are checked.
  env_->queue.After(TaskTime(1), process(), [=] {
    if (std::exchange(*staged, true)) return;
    const auto response = StagePush(push, *ticket);
    env_->network.End(call, [done, end = EndOf(response.status()), response] {
      done(end, response.ok() ? *response : v1::PushFactorsResponse());
    });
  });
}

absl::StatusOr<v1::PushFactorsResponse> ServerNode::StagePush(
    const client::PushCall& push, const server::PushTicket& ticket) {
  std::vector<server::CheckedTensor> tensors;
  for (int i = 0; i < push.header.items_size(); ++i) {
    tensors.push_back(
        ticket.slots[i].keep
            ? Check(push.tensors[i], push.header.items(i).checksum())
            : server::CheckedTensor());
  }
  absl::StatusOr<v1::PushFactorsResponse> response;
  Input([&](server::Effects* effects) {
    response =
        core_.StagePush(ticket, push.header, tensors, env_->now(), effects);
    if (response.ok()) {
      env_->checks.contributions.OnStaged(*this, push.header, *response,
                                          env_->now());
    }
  });
  return response;
}

void ServerNode::Precondition(const CallPtr& call,
                              const client::PreconditionCall& step,
                              client::Transport::OnLayer on_layer,
                              client::Transport::OnDone done) {
  const absl::Duration timeout = call->deadline - env_->now();
  const absl::Duration margin = std::min(timeout / 10, kMostMargin);
  absl::StatusOr<server::StepTicket> ticket;
  auto stream = std::make_shared<Stream>();
  Input([&](server::Effects* effects) {
    ticket = core_.EndStep(step.header, env_->now(),
                           env_->now() + timeout - margin, effects);
    env_->checks.contributions.OnStepEnds(*this, step.header, ticket.status());
    if (!ticket.ok()) return;
    stream->call = call;
    stream->on_layer = std::move(on_layer);
    stream->done = done;
    stream->requests = ticket->requests;
    stream->unanswered = ticket->requests.size();
    stream->world = step.header.call().world_version();
    stream->step = step.header.call().step();
    for (uint64_t request : ticket->requests) streams_[request] = stream;
  });
  env_->Say(process()->name(), [&] {
    return absl::StrCat(
        "<- ", call->from, " end of step ", step.header.call().step(),
        ", epoch ", step.header.call().epoch(), ", ", step.header.items_size(),
        " gradients, ", v1::StepEnd_Name(step.header.end()), ": ",
        ticket.status().ToString());
  });
  if (!ticket.ok()) {
    env_->network.End(call,
                      [done, end = EndOf(ticket.status())] { done(end); });
    return;
  }
  if (ticket->requests.empty()) {
    env_->network.End(call, [done] { done({}); });
    return;
  }
  // Not `stream` itself: it holds the call.
  call->on_gone = [this, requests = stream->requests] {
    for (uint64_t request : requests) {
      core_.Cancel(request);
      streams_.erase(request);
    }
  };
  AddGradients(step, *ticket);
}

void ServerNode::AddGradients(const client::PreconditionCall& step,
                              const server::StepTicket& ticket) {
  for (size_t i = 0; i < ticket.requests.size(); ++i) {
    if (!ticket.slots[i].keep) continue;
    const uint64_t request = ticket.requests[i];
    const Tensor tensor = step.tensors[i];
    const uint64_t checksum = step.header.items(static_cast<int>(i)).checksum();
    env_->queue.After(TaskTime(1), process(),
                      [=] { AddGradient(request, tensor, checksum); });
  }
}

void ServerNode::AddGradient(uint64_t request, const Tensor& tensor,
                             uint64_t checksum) {
  if (streams_.count(request) == 0) return;
  Input([&](server::Effects* effects) {
    core_.AddGradient(request, Check(tensor, checksum), env_->now(), effects);
  });
}

void ServerNode::SendReply(server::Reply reply) {
  const auto found = streams_.find(reply.request);
  if (found == streams_.end()) return;
  const StreamPtr stream = found->second;
  streams_.erase(found);
  env_->checks.agreement.OnAnswer(process().get(), process()->name(),
                                  stream->world, stream->step, reply);
  env_->Say(process()->name(), [&] {
    return absl::StrCat(
        "-> ", stream->call->from, " layer ", reply.reply.layer(), ": ",
        reply.value != nullptr
            ? absl::StrCat("version ", reply.reply.version(), ", age ",
                           reply.reply.age())
            : absl::StrCat(v1::FallbackReason_Name(reply.reply.reason()), " ",
                           reply.reply.message()));
  });
  client::LayerAnswer answer{std::move(reply.reply), std::move(reply.value)};
  env_->network.Send(stream->call, [stream, answer = std::move(answer)] {
    stream->on_layer(answer);
  });
  if (--stream->unanswered > 0) return;
  env_->network.End(stream->call, [stream] { stream->done({}); });
}

void ServerNode::Configure(const CallPtr& call,
                           const v1::ConfigureJobRequest& request,
                           std::function<void(const absl::Status&)> done) {
  absl::Status status;
  Input([&](server::Effects* effects) {
    status = core_.ConfigureJob(request, env_->now(), effects).status();
    if (status.ok()) {
      env_->checks.contributions.OnConfigured(*this, request.config());
    }
  });
  env_->Say(process()->name(), [&] {
    return absl::StrCat("takes ", DescribeConfig(request.config()), ": ",
                        status.ToString());
  });
  env_->network.End(call, [done = std::move(done), status] { done(status); });
}

void ServerNode::Drop(const CallPtr& call, const v1::DropJobRequest& request,
                      std::function<void(const absl::Status&)> done) {
  absl::Status status;
  Input([&](server::Effects* effects) {
    status = core_.DropJob(request, effects);
  });
  env_->network.End(call, [done = std::move(done), status] { done(status); });
}

// Below: as SchedulerLink::Exchange().

void ServerNode::ExchangeAfter(absl::Duration delay) {
  env_->queue.After(delay, process(), [this, number = ++exchange_] {
    if (number != exchange_) return;
    soon_ = false;
    Exchange();
  });
}

void ServerNode::Exchange() {
  exchanging_ = true;
  if (registered_) {
    Heartbeat();
  } else {
    Register();
  }
}

void ServerNode::Register() {
  v1::RegisterServerRequest request;
  request.set_name(process()->name());
  request.set_address(absl::StrCat(process()->name(), ":7000"));
  request.set_incarnation(incarnation_);
  request.set_memory_bytes(kMemory);
  for (v1::JobHeld& held : core_.Held(/*with_config=*/true)) {
    *request.add_held() = std::move(held);
  }
  request.set_term_seen(core_.term_seen());
  env_->network.Begin(
      process(), kScheduler, kLinkTimeout,
      [this, request](Endpoint* endpoint, const CallPtr& call) {
        static_cast<SchedulerNode*>(endpoint)
            ->Answer<v1::RegisterServerResponse>(
                call,
                [&](scheduler::SchedulerCore* core, absl::Time now) {
                  return core->RegisterServer(request, now);
                },
                [this](const absl::StatusOr<v1::RegisterServerResponse>& got) {
                  if (got.ok()) core_.SeeTerm(got->term());
                  Heard(got.status(), true);
                });
      },
      [this](const absl::Status& status) { Heard(status, true); });
}

void ServerNode::Heartbeat() {
  v1::ServerHeartbeatRequest request;
  request.set_name(process()->name());
  request.set_incarnation(incarnation_);
  for (v1::JobHeld& held : core_.Held()) *request.add_held() = std::move(held);
  env_->network.Begin(
      process(), kScheduler, kLinkTimeout,
      [this, request](Endpoint* endpoint, const CallPtr& call) {
        static_cast<SchedulerNode*>(endpoint)
            ->Answer<v1::ServerHeartbeatResponse>(
                call,
                [&](scheduler::SchedulerCore* core, absl::Time now) {
                  return core->ServerHeartbeat(request, now);
                },
                [this](const absl::StatusOr<v1::ServerHeartbeatResponse>& got) {
                  HeartbeatAnswered(got);
                });
      },
      [this](const absl::Status& status) { Heard(status, false); });
}

void ServerNode::HeartbeatAnswered(
    const absl::StatusOr<v1::ServerHeartbeatResponse>& response) {
  if (response.ok()) {
    core_.SeeTerm(response->term());
    Input([&](server::Effects* effects) {
      core_.SeeProgress(response->jobs(), env_->now(), effects);
    });
  }
  Heard(response.status(), false);
}

void ServerNode::Heard(const absl::Status& status, bool registering) {
  exchanging_ = false;
  if (status.ok()) {
    backoff_.Reset();
    registered_ = true;
    ExchangeAfter(soon_ ? kSoon : kHeartbeat);
  } else if (!registering &&
             (absl::IsNotFound(status) || absl::IsAborted(status))) {
    registered_ = false;
    ExchangeAfter(absl::ZeroDuration());
  } else {
    ExchangeAfter(backoff_.Next());
  }
}

}  // namespace kronserve::simulation
