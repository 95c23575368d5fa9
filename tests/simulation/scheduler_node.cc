#include "tests/simulation/scheduler_node.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "tests/simulation/server_node.h"

namespace kronserve::simulation {
namespace {

constexpr absl::Duration kControlTimeout = absl::Seconds(5);

}  // namespace

absl::Status SimulatedStore::Write(const scheduler::WriteBatch& batch) {
  for (const scheduler::StateWrite& write : batch) {
    if (write.value.has_value()) {
      durable_[write.key] = *write.value;
    } else {
      durable_.erase(write.key);
    }
  }
  return absl::OkStatus();
}

SchedulerNode::SchedulerNode(Environment* env, SimulatedStore* store)
    : Endpoint(std::make_shared<Process>(kScheduler)),
      env_(env),
      store_(store) {
  scheduler::CoreOptions options;
  options.incarnation = env_->random.NextId();
  const absl::StatusOr<uint64_t> term = scheduler::RaiseTerm(store);
  auto core = scheduler::SchedulerCore::Create(options, store->durable(), *term,
                                               env_->now());
  env_->checks.Require(core.ok(), [&] {
    return absl::StrCat("the scheduler does not start: ",
                        core.status().ToString());
  });
  if (!core.ok()) return;
  core_ = *std::move(core);
  env_->Say(kScheduler, [&] { return absl::StrCat("starts, term ", *term); });
  env_->network.Listen(kScheduler, this);
  Tick();
}

void SchedulerNode::Tick() {
  core_->Tick(env_->now());
  StartEffects();
  env_->queue.After(scheduler::CoreOptions().tick, process(),
                    [this] { Tick(); });
}

void SchedulerNode::StartEffects() {
  for (const scheduler::Effect& effect : core_->TakeEffects()) Start(effect);
}

void SchedulerNode::Start(const scheduler::Effect& effect) {
  if (const auto* persist = std::get_if<scheduler::PersistEffect>(&effect)) {
    Persist(*persist);
  } else if (const auto* configure =
                 std::get_if<scheduler::ConfigureEffect>(&effect)) {
    Configure(*configure);
  } else if (const auto* drop = std::get_if<scheduler::DropEffect>(&effect)) {
    Drop(*drop);
  } else if (const auto* write =
                 std::get_if<scheduler::WriteCheckpointEffect>(&effect)) {
    WriteCheckpoint(*write);
  } else if (const auto* commit =
                 std::get_if<scheduler::CommitCheckpointEffect>(&effect)) {
    CommitCheckpoint(*commit);
  } else if (const auto* line = std::get_if<scheduler::LogEffect>(&effect)) {
    env_->Say(kScheduler, [&] { return line->message; });
  }
}

void SchedulerNode::Persist(const scheduler::PersistEffect& effect) {
  writes_.push_back(effect);
  if (writes_.size() == 1) WriteNext();
}

void SchedulerNode::WriteNext() {
  const absl::Duration takes = env_->random.Between(
      absl::Milliseconds(1),
      absl::Milliseconds(env_->random.Chance(0.1) ? 1500 : 30));
  env_->queue.After(takes, process(), [this] {
    const scheduler::PersistEffect effect = std::move(writes_.front());
    writes_.pop_front();
    const absl::Status status = disk_full_ ? absl::UnavailableError("disk full")
                                           : store_->Write(effect.writes);
    if (!writes_.empty()) WriteNext();
    Done(effect.ticket, status);
  });
}

void SchedulerNode::Die() {
  // The disk works in order, so what it keeps is a beginning.
  for (const scheduler::PersistEffect& effect : writes_) {
    if (disk_full_ || env_->random.Chance(0.5)) return;
    (void)store_->Write(effect.writes);
  }
}

void SchedulerNode::Configure(const scheduler::ConfigureEffect& effect) {
  env_->checks.progress.OnSent(effect.request, store_->durable());
  env_->Say(kScheduler, [&] {
    return absl::StrCat("-> ", effect.server.name(), " ConfigureJob ",
                        DescribeConfig(effect.request.config()));
  });
  const uint64_t ticket = effect.ticket;
  env_->network.Begin(
      process(), effect.server.name(), kControlTimeout,
      [this, ticket, request = effect.request](Endpoint* endpoint,
                                               const CallPtr& call) {
        static_cast<ServerNode*>(endpoint)->Configure(
            call, request, [this, ticket](const absl::Status& status) {
              Done(ticket, status);
            });
      },
      [this, ticket](const absl::Status& status) { Done(ticket, status); });
}

void SchedulerNode::Drop(const scheduler::DropEffect& effect) {
  const uint64_t ticket = effect.ticket;
  env_->network.Begin(
      process(), effect.server.name(), kControlTimeout,
      [this, ticket, request = effect.request](Endpoint* endpoint,
                                               const CallPtr& call) {
        static_cast<ServerNode*>(endpoint)->Drop(
            call, request, [this, ticket](const absl::Status& status) {
              Done(ticket, status);
            });
      },
      [this, ticket](const absl::Status& status) { Done(ticket, status); });
}

void SchedulerNode::WriteCheckpoint(
    const scheduler::WriteCheckpointEffect& effect) {
  const auto done =
      [this, ticket = effect.ticket](
          const absl::StatusOr<v1::WriteCheckpointResponse>& response) {
        core_->CheckpointWritten(ticket, response, env_->now());
        StartEffects();
      };
  env_->network.Begin(
      process(), effect.server.name(), kControlTimeout,
      [request = effect.request, done](Endpoint* endpoint,
                                       const CallPtr& call) {
        static_cast<ServerNode*>(endpoint)->WriteCheckpoint(call, request,
                                                            done);
      },
      [done](const absl::Status& status) { done(status); });
}

void SchedulerNode::CommitCheckpoint(
    const scheduler::CommitCheckpointEffect& effect) {
  const auto done = [this, ticket = effect.ticket](const absl::Status& status) {
    Done(ticket, status);
  };
  env_->network.Begin(
      process(), effect.server.name(), kControlTimeout,
      [request = effect.request, done](Endpoint* endpoint,
                                       const CallPtr& call) {
        static_cast<ServerNode*>(endpoint)->CommitCheckpoint(call, request,
                                                             done);
      },
      done);
}

void SchedulerNode::Done(uint64_t ticket, const absl::Status& status) {
  core_->EffectDone(ticket, status, env_->now());
  StartEffects();
}

}  // namespace kronserve::simulation
