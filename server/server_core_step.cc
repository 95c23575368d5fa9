// ServerCore: steps end, gradients come in, answers go out.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/server_core.h"

namespace kronserve::server {
namespace {

// A gradient of more elements does not fit 63 bits of bytes.
constexpr int64_t kMaxClaimedElements = int64_t{1} << 59;

// As ClaimedElements() of a push: enough to skip the chunks of an item that
// was answered already.
int64_t ClaimedElements(const v1::GradientItem& item) {
  int64_t elements = 0;
  if (item.rows() < 1 || item.cols() < 1 ||
      __builtin_mul_overflow(item.rows(), item.cols(), &elements) ||
      elements > kMaxClaimedElements) {
    return 0;
  }
  return elements;
}

// A gradient and its answer.
int64_t StagedBytes(const LayerRules& rules) {
  return 2 * rules.d_in * rules.d_out * static_cast<int64_t>(sizeof(float));
}

bool Fits(const LayerRules& rules, const v1::GradientItem& item) {
  return item.rows() == rules.d_out && item.cols() == rules.d_in;
}

absl::Status CheckStepHeader(const v1::PreconditionHeader& header) {
  if (header.end() != v1::STEP_END_COMMIT &&
      header.end() != v1::STEP_END_VOID) {
    return absl::InvalidArgumentError(
        absl::StrCat("end is ", header.end(), ": expected commit or void"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StepTicket> ServerCore::EndStep(
    const v1::PreconditionHeader& header, absl::Time now, absl::Time deadline,
    Effects* effects) {
  const v1::CallHeader& call = header.call();
  KRONSERVE_ASSIGN_OR_RETURN(JobState* const job, FindJob(call, now, effects));
  KRONSERVE_RETURN_IF_ERROR(CheckStepHeader(header));
  KRONSERVE_RETURN_IF_ERROR(CheckOwners(*job, call, header.items(), effects));
  int64_t bytes = 0;
  for (const v1::GradientItem& item : header.items()) {
    HeldLayer* layer = job->FindLayer(item.layer());
    if (layer == nullptr) continue;  // Answered by itself.
    layer->newest_step = std::max(layer->newest_step, call.step());
    if (Fits(layer->state.rules(), item)) {
      bytes += StagedBytes(layer->state.rules());
    }
  }
  if (header.end() == v1::STEP_END_VOID) {
    job->ledger().Void(call.step(), call.rank(), header.void_reason());
  } else {
    job->ledger().Commit(call.step(), call.rank());
  }
  for (auto& [index, layer] : job->layers()) {
    // Steps from until_step on are the new owner's to close.
    layer.state.rounds().Pass(layer.is_to_leave()
                                  ? std::min(call.step(), layer.until_step)
                                  : call.step());
  }
  AdvanceAll(*job, now, effects);
  job->PruneLedger();
  if (const absl::Status status = staging_.Reserve(bytes); !status.ok()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("gradients of job '", job->name(), "', step ", call.step(),
                     ": ", std::string(status.message())));
  }
  const absl::Time latest = std::min(
      deadline,
      now + absl::Milliseconds(job->config().options().step_budget_ms()));
  StepTicket ticket;
  for (int i = 0; i < header.items_size(); ++i) {
    const uint64_t request = next_request_++;
    ticket.requests.push_back(request);
    ticket.slots.push_back(
        OpenRequest(*job, header, i, {request, latest}, effects));
  }
  return ticket;
}

// Makes a request of an item, or answers it at once.
ChunkAssembler::Slot ServerCore::OpenRequest(
    JobState& job, const v1::PreconditionHeader& header, int item,
    const NewRequest& opened, Effects* effects) {
  const uint64_t request = opened.id;
  const v1::GradientItem& gradient = header.items(item);
  GradientRequest entry;
  entry.job = job.name();
  entry.world_version = job.world_version();
  entry.layer = gradient.layer();
  entry.item = item;
  entry.step = header.call().step();
  entry.deadline = opened.deadline;
  const HeldLayer* layer = job.FindLayer(gradient.layer());
  const bool fits = layer != nullptr && Fits(layer->state.rules(), gradient);
  if (fits) entry.staged_bytes = StagedBytes(layer->state.rules());
  requests_[request] = entry;

  const ChunkAssembler::Slot dropped{ClaimedElements(gradient), false};
  if (layer == nullptr) {
    ReplyFallback(
        request, v1::FALLBACK_REASON_BAD_GRADIENT,
        absl::StrCat("layer ", gradient.layer(), ": job '", job.name(),
                     "' has ", job.config().layers_size(), " layers, from 0"),
        effects);
    return dropped;
  }
  const LayerRules& rules = layer->state.rules();
  if (!fits) {
    ReplyFallback(
        request, v1::FALLBACK_REASON_BAD_GRADIENT,
        absl::StrCat("layer '", rules.name, "', step ", entry.step,
                     ": gradient is [", gradient.rows(), ", ", gradient.cols(),
                     "], registered [", rules.d_out, ", ", rules.d_in, "]"),
        effects);
    return dropped;
  }
  if (const std::string* reason = job.ledger().VoidReason(entry.step)) {
    ReplyFallback(request, v1::FALLBACK_REASON_VOID,
                  absl::StrCat("step ", entry.step, " is void: ", *reason),
                  effects);
    return dropped;
  }
  return {rules.d_in * rules.d_out, true};
}

void ServerCore::AddGradient(uint64_t request, CheckedTensor gradient,
                             absl::Time now, Effects* effects) {
  const auto it = requests_.find(request);
  if (it == requests_.end()) return;  // Answered or cancelled meanwhile.
  GradientRequest& entry = it->second;
  const auto found = jobs_.find(entry.job);
  JobState* job = found == jobs_.end() ? nullptr : found->second.get();
  if (job == nullptr || job->world_version() != entry.world_version ||
      job->FindLayer(entry.layer) == nullptr) {
    ReplyFallback(request, v1::FALLBACK_REASON_NOT_READY,
                  absl::StrCat("job '", entry.job, "', layer ", entry.layer,
                               " left this server while its gradient came"),
                  effects);
    return;
  }
  HeldLayer& layer = *job->FindLayer(entry.layer);
  if (!gradient.status.ok()) {
    ReplyFallback(
        request, v1::FALLBACK_REASON_BAD_GRADIENT,
        absl::StrCat("job '", entry.job, "', layer '", layer.state.rules().name,
                     "', gradient, step ", entry.step, ": ",
                     std::string(gradient.status.message())),
        effects);
    return;
  }
  entry.gradient = std::move(gradient.tensor);
  layer.waiting.push_back(request);
  Advance(*job, layer, now, effects);
}

void ServerCore::AnswerWaiting(JobState& job, HeldLayer& layer,
                               Effects* effects) {
  std::vector<uint64_t> still_waiting;
  for (uint64_t request : layer.waiting) {
    const auto it = requests_.find(request);
    if (it == requests_.end()) continue;  // Cancelled.
    const Answer answer = layer.state.Decide(it->second.step, job.ledger());
    if (answer.kind == Answer::Kind::kWait) {
      still_waiting.push_back(request);
    } else {
      GiveAnswer(request, answer, effects);
    }
  }
  layer.waiting = std::move(still_waiting);
}

// The layer's state did not come while a request could wait for it.
void ServerCore::RefuseWaiting(HeldLayer& layer, Effects* effects) {
  for (uint64_t request : std::exchange(layer.waiting, {})) {
    ReplyFallback(request, v1::FALLBACK_REASON_NOT_READY,
                  absl::StrCat("layer '", layer.state.rules().name,
                               "': its state is still to come from ",
                               layer.source.empty()
                                   ? "its checkpoint"
                                   : absl::StrCat("'", layer.source, "'")),
                  effects);
  }
}

void ServerCore::GiveAnswer(uint64_t request, const Answer& answer,
                            Effects* effects) {
  if (answer.kind == Answer::Kind::kFallback) {
    ReplyFallback(request, answer.reason, answer.message, effects);
    return;
  }
  GradientRequest& entry = requests_[request];
  entry.reply.set_outcome(v1::LAYER_OUTCOME_PRECONDITIONED);
  entry.reply.set_version(answer.basis->version);
  entry.reply.set_age(answer.age);
  entry.reply.set_rung(answer.rung);
  entry.reply.set_damping(answer.damping);
  PreconditionTask task;
  task.request = request;
  // Shares the life of the published object, points at its factorisation.
  task.input.factorization =
      std::shared_ptr<const curvature::Factorization<float>>(
          answer.basis, &answer.basis->factorization);
  task.input.damping = answer.damping;
  task.input.rows = answer.basis->factorization.g.rows;
  task.input.cols = answer.basis->factorization.a.rows;
  task.input.gradient = std::move(entry.gradient);
  effects->preconditions.push_back(std::move(task));
}

void ServerCore::FinishPrecondition(uint64_t request,
                                    absl::StatusOr<PreconditionOutput> result,
                                    Effects* effects) {
  const auto it = requests_.find(request);
  if (it == requests_.end()) return;
  if (!result.ok()) {
    ReplyFallback(request, v1::FALLBACK_REASON_BAD_RESULT,
                  std::string(result.status().message()), effects);
    return;
  }
  v1::LayerReply reply = std::move(it->second.reply);
  reply.set_inner_product(result->inner_product);
  reply.set_checksum(result->checksum);
  counters_.set_preconditioned(counters_.preconditioned() + 1);
  SendReply(request, std::move(reply), result->value, effects);
}

void ServerCore::ReplyFallback(uint64_t request, v1::FallbackReason reason,
                               const std::string& message, Effects* effects) {
  if (requests_.count(request) == 0) return;  // Cancelled: nobody falls back.
  v1::LayerReply reply;
  reply.set_outcome(v1::LAYER_OUTCOME_FALLBACK);
  reply.set_reason(reason);
  reply.set_message(message);
  counters_.set_fallbacks(counters_.fallbacks() + 1);
  SendReply(request, std::move(reply), nullptr, effects);
}

void ServerCore::SendReply(uint64_t request, v1::LayerReply reply, Tensor value,
                           Effects* effects) {
  const auto it = requests_.find(request);
  if (it == requests_.end()) return;
  const GradientRequest& entry = it->second;
  reply.set_item(entry.item);
  reply.set_layer(entry.layer);
  const auto job = jobs_.find(entry.job);
  const uint64_t epoch = job == jobs_.end() ? 0 : job->second->epoch();
  staging_.Release(entry.staged_bytes);
  effects->replies.push_back(
      {request, std::move(reply), std::move(value), epoch});
  requests_.erase(it);
}

// The caller's time is over.
void ServerCore::ExpireRequest(uint64_t request, Effects* effects) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) return;  // Answered with another one.
  const GradientRequest& entry = found->second;
  const auto it = jobs_.find(entry.job);
  HeldLayer* layer =
      it == jobs_.end() ? nullptr : it->second->FindLayer(entry.layer);
  const bool arrived =
      entry.gradient != nullptr ||
      entry.reply.outcome() == v1::LAYER_OUTCOME_PRECONDITIONED;
  if (layer == nullptr || !arrived ||
      it->second->world_version() != entry.world_version) {
    ReplyFallback(request, v1::FALLBACK_REASON_NOT_READY,
                  absl::StrCat("the gradient of layer ", entry.layer, ", step ",
                               entry.step, " did not arrive in time"),
                  effects);
    return;
  }
  if (layer->is_awaited()) {
    layer->wait_spent = true;
    RefuseWaiting(*layer, effects);
    return;
  }
  const Answer answer = layer->state.GiveUp(entry.step);
  ReplyFallback(request, answer.reason, answer.message, effects);
}

void ServerCore::Cancel(uint64_t request) {
  const auto it = requests_.find(request);
  if (it == requests_.end()) return;
  staging_.Release(it->second.staged_bytes);
  requests_.erase(it);
}

}  // namespace kronserve::server
