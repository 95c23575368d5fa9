#include "tests/simulation/rank_node.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/silent_owners.h"
#include "common/checksum.h"
#include "curvature/refresh_policy.h"
#include "linalg/matrix_view.h"
#include "linalg/packed_triangle.h"
#include "tests/simulation/server_node.h"
#include "worker/session_options.h"
#include "worker/step_ballot.h"
#include "worker/step_vote.h"

namespace kronserve::simulation {
namespace {

constexpr double kLearningRate = 0.1;
constexpr double kDecay = 0.9;

double DampingOf(int64_t step) { return step % 7 == 0 ? 0.05 : 0.03; }

uint64_t ChecksumOf(const Tensor& tensor) {
  return Checksum(tensor->data(), tensor->size() * sizeof(float));
}

float Entry(Random* random) {
  return static_cast<float>(2 * random->Unit() - 1);
}

// The packed sum of `rows` outer products.
Tensor DrawSum(Random* random, int64_t d, int64_t rows) {
  std::vector<float> packed(linalg::PackedSize(d));
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<float> x(d);
    for (float& value : x) value = Entry(random);
    size_t at = 0;
    for (int64_t i = 0; i < d; ++i) {
      for (int64_t j = i; j < d; ++j) packed[at++] += x[i] * x[j];
    }
  }
  return std::make_shared<const std::vector<float>>(std::move(packed));
}

// A step of plain gradient descent.
void Descend(const std::vector<std::vector<float>>& gradients,
             TrainingState* state) {
  for (size_t layer = 0; layer < gradients.size(); ++layer) {
    std::vector<float>& parameters = state->parameters[layer];
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i] -= static_cast<float>(kLearningRate) * gradients[layer][i];
    }
  }
}

}  // namespace

void RankNode::Later(absl::Duration delay,
                     const std::function<void()>& action) {
  env_->queue.After(delay, process_, [this, life = life_, action] {
    if (life == life_) action();
  });
}

void RankNode::BeginStep() {
  Session* const session = sessions_.back().get();
  voided_ = env_->random.Chance(env_->plan.void_step);
  client::StepContext context;
  context.call.set_job(kJob);
  context.call.set_world_version(session->world.version());
  context.call.set_rank(rank_);
  context.call.set_incarnation(incarnation_);
  context.budget = absl::Milliseconds(env_->plan.options.step_budget_ms());
  context.routing = &session->routing;
  context.suspects = &session->suspects;
  client::StepRequest request = MakeRequest(voided_);
  env_->checks.contributions.OnSent(session->world.version(), rank_, request);
  env_->Say(process_->name(), [&] {
    return absl::StrCat("begins step ", state_.next_step, " in epoch ",
                        session->routing.active_epoch(), ", ",
                        request.contributions.size(), " contributions, ",
                        request.gradients.size(), " gradients",
                        voided_ ? ", void" : "");
  });
  own_.assign(env_->plan.layers.size(), client::LayerAnswer());
  was_frozen_ = false;
  step_ = std::make_shared<Step>(session, std::move(request), context);
  step_->begin = env_->now();
  const StepPtr step = step_;
  Drive(step, step->core.Begin(env_->now()));
}

client::StepRequest RankNode::MakeRequest(bool voided) {
  const placement::Delegates& delegates = sessions_.back()->delegates;
  const int64_t step = state_.next_step;
  client::StepRequest request;
  request.step = step;
  request.ends_everywhere =
      curvature::IsFactorStep(worker::IntervalsOf(env_->plan.options), step);
  request.damping = DampingOf(step);
  request.factor_decay = kDecay;
  if (voided) {
    request.void_reason = "overflow";
    return request;
  }
  for (int layer = 0; layer < static_cast<int>(env_->plan.layers.size());
       ++layer) {
    const std::vector<int>& from = delegates.contributors[layer];
    if (request.ends_everywhere &&
        std::binary_search(from.begin(), from.end(), rank_)) {
      AddContributions(layer, &request);
    }
    if (delegates.gradient_rank[layer] == rank_) AddGradient(layer, &request);
  }
  return request;
}

void RankNode::AddContributions(int layer, client::StepRequest* request) {
  const v1::LayerSpec& spec = env_->plan.layers[layer];
  const bool empty = env_->random.Chance(env_->plan.empty);
  const int64_t rows = env_->random.Between(1, 4);
  for (const v1::FactorKind kind :
       {v1::FACTOR_KIND_INPUT, v1::FACTOR_KIND_OUTPUT}) {
    const int64_t d =
        kind == v1::FACTOR_KIND_INPUT ? spec.d_in() : spec.d_out();
    client::Contribution contribution;
    contribution.item.set_layer(layer);
    contribution.item.set_kind(kind);
    contribution.item.set_dim(d);
    contribution.item.set_body(empty ? v1::CONTRIBUTION_BODY_EMPTY_UNUSED
                                     : v1::CONTRIBUTION_BODY_DATA);
    if (!empty) {
      contribution.item.set_loss_rows(rows);
      contribution.item.set_rows(2 * rows);
      contribution.values = DrawSum(&env_->random, d, rows);
      const bool damaged = env_->random.Chance(env_->plan.damaged);
      contribution.item.set_checksum(ChecksumOf(contribution.values) ^
                                     (damaged ? 1 : 0));
    }
    request->contributions.push_back(std::move(contribution));
  }
}

// All ranks have the same: it was averaged over them.
void RankNode::AddGradient(int layer, client::StepRequest* request) {
  const v1::LayerSpec& spec = env_->plan.layers[layer];
  client::Gradient gradient;
  gradient.item.set_layer(layer);
  gradient.item.set_rows(spec.d_out());
  gradient.item.set_cols(spec.d_in());
  gradient.values = std::make_shared<const std::vector<float>>(
      GradientOf(env_->plan, layer, request->step));
  gradient.item.set_checksum(ChecksumOf(gradient.values));
  request->gradients.push_back(std::move(gradient));
}

std::vector<float> GradientOf(const ClusterPlan& plan, int layer,
                              int64_t step) {
  Random random(Random::Mix(plan.seed) ^
                Random::Mix(static_cast<uint64_t>(step * 64 + layer)));
  std::vector<float> gradient(plan.layers[layer].d_out() *
                              plan.layers[layer].d_in());
  for (float& value : gradient) value = Entry(&random);
  return gradient;
}

void RankNode::Drive(const StepPtr& step, client::StepEffects effects) {
  for (client::StepEffects::Push& push : effects.pushes) {
    SendPush(step, std::move(push));
  }
  for (client::StepEffects::Precondition& call : effects.preconditions) {
    SendPrecondition(step, std::move(call));
  }
  for (const auto& change : step->session->suspects.TakeChanges()) {
    env_->Say(process_->name(), [&] {
      return absl::StrCat(change.server,
                          change.suspect ? " is suspect: " : " is back",
                          change.reason);
    });
  }
  if (step->over) return;
  if (step->core.done()) {
    Done(step);
  } else {
    ArmTimer(step);
  }
}

void RankNode::ArmTimer(const StepPtr& step) {
  const absl::Time wake = step->core.next_wake();
  if (wake == step->wake) return;
  step->wake = wake;
  env_->queue.At(wake, process_, [this, step, wake] {
    if (step->over || step->wake != wake || step != step_) return;
    step->wake = absl::InfiniteFuture();
    Drive(step, step->core.Tick(env_->now()));
  });
}

void RankNode::SendPush(const StepPtr& step, client::StepEffects::Push push) {
  const auto done = [this, step, id = push.id](
                        const client::CallEnd& end,
                        const v1::PushFactorsResponse& response) {
    if (step->session != sessions_.back().get()) return;
    Drive(step, step->core.OnPushDone(id, end, response, env_->now()));
  };
  const client::Target target = push.call.target;
  env_->network.Begin(
      process_, target.server, target.timeout,
      [call = std::move(push.call), done](Endpoint* endpoint,
                                          const CallPtr& handle) {
        static_cast<ServerNode*>(endpoint)->Push(handle, call, done);
      },
      [done](const absl::Status& status) {
        done({status, {}}, {});
      });
}

void RankNode::SendPrecondition(const StepPtr& step,
                                client::StepEffects::Precondition call) {
  const auto on_layer = [this, step, id = call.id](client::LayerAnswer answer) {
    if (step->session != sessions_.back().get()) return;
    Drive(step, step->core.OnLayer(id, std::move(answer), env_->now()));
  };
  const auto done = [this, step, id = call.id](const client::CallEnd& end) {
    if (step->session != sessions_.back().get()) return;
    Drive(step, step->core.OnPreconditionDone(id, end, env_->now()));
  };
  const client::Target target = call.call.target;
  env_->network.Begin(
      process_, target.server, target.timeout,
      [call = std::move(call.call), on_layer, done](Endpoint* endpoint,
                                                    const CallPtr& handle) {
        static_cast<ServerNode*>(endpoint)->Precondition(handle, call, on_layer,
                                                         done);
      },
      [done](const absl::Status& status) {
        done({status, {}});
      });
}

void RankNode::Done(const StepPtr& step) {
  step->over = true;
  if (step != step_) return;
  const Session& session = *step->session;
  env_->checks.service.OnWaited(session.world.version(), state_.next_step,
                                rank_, env_->now() - step->begin, was_frozen_);
  for (client::LayerAnswer& answer : step->core.TakeAnswer().layers) {
    own_[answer.reply.layer()] = std::move(answer);
  }
  session.group->Arrive(rank_);
}

void RankNode::HandRound(worker::Communicator* group) {
  (void)sessions_.back()->broadcast.Run(*group, *env_->tools.working.kernels,
                                        own_, &held_);
}

std::vector<int64_t> RankNode::Ballot() {
  Session& session = *sessions_.back();
  const std::vector<bool> silent =
      client::SilentOwners(session.routing, static_cast<int>(held_.size()),
                           state_.next_step, session.suspects);
  return worker::EncodeBallot(
      worker::MakeBallot(held_, silent, session.routing.held_epoch(), voided_));
}

void RankNode::Agreed(const std::vector<int64_t>& minimum) {
  Session& session = *sessions_.back();
  const worker::StepDecision decision = worker::DecideStep(minimum);
  client::TakeVote(state_.next_step, decision.owner_silent, decision.epoch,
                   env_->now(), {&session.routing, &session.suspects});
  env_->checks.contributions.OnAgreed(session.world.version(),
                                      state_.next_step);
  env_->checks.progress.OnRank(process_.get(), session.world.version(),
                               session.routing.held_epoch(),
                               session.routing.active_epoch());
  Apply(decision);
  ++state_.next_step;
  Later(env_->random.Between(env_->plan.fastest_step, env_->plan.slowest_step),
        [this] { BeginStep(); });
}

void RankNode::Apply(const worker::StepDecision& decision) {
  Session& session = *sessions_.back();
  const int64_t step = state_.next_step;
  const auto layers = static_cast<int>(held_.size());
  std::vector<AppliedLayer> applied(layers);
  std::vector<worker::AgreedLayer> agreed(layers);
  std::vector<std::vector<float>> gradients;
  std::vector<linalg::MatrixView<float>> views;
  std::vector<std::string> why;
  for (int layer = 0; layer < layers; ++layer) {
    const worker::HeldAnswer& held = held_[layer];
    gradients.push_back(GradientOf(env_->plan, layer, step));
    views.push_back({gradients.back().data(), env_->plan.layers[layer].d_out(),
                     env_->plan.layers[layer].d_in()});
    why.push_back(
        absl::StrCat(v1::FallbackReason_Name(held.reason), " ", held.message));
    if (!decision.preconditioned[layer]) continue;
    applied[layer] = {true, held.version, held.checksum};
    agreed[layer] = {held.values, held.inner_product};
  }
  if (!decision.voided) {
    session.replacer.Replace(agreed, {kLearningRate, 0.001, DampingOf(step)},
                             views);
    Descend(gradients, &state_);
  }
  uint64_t hash = 0;
  for (const std::vector<float>& parameters : state_.parameters) {
    hash = Random::Mix(
        hash ^ Checksum(parameters.data(), parameters.size() * sizeof(float)));
  }
  env_->Say(process_->name(), [&] {
    std::string text = absl::StrCat("agreed on step ", step,
                                    decision.voided ? ", void:" : ":");
    for (int layer = 0; layer < layers; ++layer) {
      absl::StrAppend(&text, " l", layer, " ",
                      applied[layer].preconditioned
                          ? absl::StrCat("v", applied[layer].version)
                          : why[layer]);
    }
    return text;
  });
  env_->checks.agreement.OnApplied(session.world.version(), step, rank_,
                                   applied, hash);
  env_->checks.service.OnOutcome(
      env_->now() - absl::UnixEpoch() - absl::Hours(1), step, decision.voided,
      applied, why);
}

void RankNode::Adopt(const v1::Assignment& assignment) {
  Session& session = *sessions_.back();
  env_->checks.progress.OnTold(assignment, launcher_->durable());
  const absl::StatusOr<bool> adopted = session.routing.Adopt(assignment);
  env_->checks.Require(adopted.ok(), [&] {
    return absl::StrCat(process_->name(), ": ", adopted.status().ToString());
  });
  if (!adopted.ok() || !*adopted) return;
  env_->Say(process_->name(),
            [&] { return absl::StrCat("holds epoch ", assignment.epoch()); });
  if (step_ == nullptr || step_->over) return;
  const StepPtr step = step_;
  Drive(step, step->core.OnAssignment(env_->now()));
}

}  // namespace kronserve::simulation
