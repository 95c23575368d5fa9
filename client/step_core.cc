#include "client/step_core.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace kronserve::client {
namespace {

constexpr absl::Duration kFirstRetry = absl::Milliseconds(20);
constexpr absl::Duration kLongestRetry = absl::Milliseconds(250);
constexpr absl::Duration kLongestMargin = absl::Milliseconds(100);

// The server, or what lies before it, asks to try the same call again.
bool AsksToRetry(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         absl::IsDataLoss(status);
}

// The call ended without a word of the server.
bool Unheard(const absl::Status& status) {
  return absl::IsDeadlineExceeded(status) || absl::IsCancelled(status);
}

std::string Text(const absl::Status& status) {
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ",
                      std::string(status.message()));
}

bool Contains(const std::vector<int>& layers, int layer) {
  return std::find(layers.begin(), layers.end(), layer) != layers.end();
}

const char* Letter(v1::FactorKind kind) {
  return kind == v1::FACTOR_KIND_INPUT ? "A" : "G";
}

}  // namespace

StepCore::StepCore(StepRequest request, const StepContext& context)
    : request_(std::move(request)),
      context_(context),
      answered_(request_.gradients.size(), false) {
  answer_.layers.resize(request_.gradients.size());
}

StepEffects StepCore::Begin(absl::Time now) {
  begin_ = now;
  Items all;
  for (size_t i = 0; i < request_.contributions.size(); ++i) {
    all.contributions.push_back(i);
  }
  for (size_t i = 0; i < request_.gradients.size(); ++i) {
    all.gradients.push_back(i);
  }
  StepEffects effects;
  OpenLanes(context_.routing->active_epoch(), all, {}, now, &effects);
  return effects;
}

StepEffects StepCore::OnPushDone(uint64_t id, const CallEnd& end,
                                 const v1::PushFactorsResponse& response,
                                 absl::Time now) {
  StepEffects effects;
  Lane* lane = Find(id);
  if (lane == nullptr) return effects;
  lane->call = 0;
  Heard(lane, end);
  if (AsksToRetry(end.status)) {
    RetryLater(lane, end.status, now);
  } else if (Reroutable(*lane, end)) {
    Reroute(lane - lanes_.data(), end.elsewhere, now, &effects);
  } else {
    lane->pushed = true;
    if (end.status.ok()) {
      NoteRefused(*lane, response);
    } else {
      NoteNotPushed(*lane, end.status);
    }
    Precondition(lane, now, &effects);
  }
  return effects;
}

StepEffects StepCore::OnLayer(uint64_t id, LayerAnswer answer, absl::Time now) {
  (void)now;
  Lane* lane = Find(id);
  if (lane == nullptr) return {};
  context_.suspects->Heard(lane->server);
  const int item = answer.reply.item();
  if (item < 0 || item >= static_cast<int>(lane->items.gradients.size())) {
    return {};
  }
  const size_t gradient = lane->items.gradients[item];
  if (answered_[gradient]) return {};
  const v1::GradientItem& asked = request_.gradients[gradient].item;
  if (answer.reply.layer() != asked.layer()) return {};
  const bool preconditioned =
      answer.reply.outcome() == v1::LAYER_OUTCOME_PRECONDITIONED;
  if (preconditioned && (answer.values == nullptr ||
                         static_cast<int64_t>(answer.values->size()) !=
                             asked.rows() * asked.cols())) {
    FallBack({gradient}, v1::FALLBACK_REASON_BAD_RESULT,
             absl::StrCat("server '", lane->server, "' answered without V [",
                          asked.rows(), ", ", asked.cols(), "]"));
    return {};
  }
  answered_[gradient] = true;
  answer_.layers[gradient] = std::move(answer);
  return {};
}

StepEffects StepCore::OnPreconditionDone(uint64_t id, const CallEnd& end,
                                         absl::Time now) {
  StepEffects effects;
  Lane* lane = Find(id);
  if (lane == nullptr) return effects;
  lane->call = 0;
  Heard(lane, end);
  if (lane->waited) {
    std::vector<size_t>& gradients = lane->items.gradients;
    gradients.erase(std::remove_if(gradients.begin(), gradients.end(),
                                   [this](size_t i) { return answered_[i]; }),
                    gradients.end());
  }
  if (end.status.ok()) {
    lane->delivered = true;
    GiveUp(lane, absl::InternalError(absl::StrCat(
                     "server '", lane->server,
                     "' ended the call without answering for this layer")));
  } else if (Reroutable(*lane, end)) {
    Reroute(lane - lanes_.data(), end.elsewhere, now, &effects);
  } else if (AsksToRetry(end.status)) {
    RetryLater(lane, end.status, now);
  } else if (absl::IsDeadlineExceeded(end.status)) {
    Spent(lane, now);
  } else {
    GiveUp(lane, end.status);
  }
  return effects;
}

StepEffects StepCore::OnAssignment(absl::Time now) {
  StepEffects effects;
  const RoutingTable& routing = *context_.routing;
  const size_t count = lanes_.size();  // Lanes opened below are up to date.
  for (size_t i = 0; i < count; ++i) {
    Lane& lane = lanes_[i];
    const bool waiting = lane.stage != Stage::kEnded && lane.call == 0;
    if (!waiting || routing.held_epoch() <= lane.epoch) continue;
    GiveUpLeaving(lane);
    Reroute(i, {}, now, &effects);
  }
  return effects;
}

// Answers the gradients whose layers `lane`'s server owns at this step only:
// it does not answer, and another starts anew with them later.
void StepCore::GiveUpLeaving(const Lane& lane) {
  const RoutingTable& routing = *context_.routing;
  for (const size_t gradient : lane.items.gradients) {
    const int layer = request_.gradients[gradient].item.layer();
    const std::string next = routing.NewestOwner(layer);
    if (next == lane.server || routing.NewestSource(layer) == lane.server ||
        routing.Owner(layer, request_.step, routing.held_epoch()) !=
            lane.server) {
      continue;
    }
    FallBack({gradient}, v1::FALLBACK_REASON_UNREACHABLE,
             absl::StrCat(
                 "server '", lane.server, "' does not answer; server '", next,
                 "' owns the layer from a later step: ", Text(lane.last)));
  }
}

void StepCore::Abandon(const absl::Status& why) {
  for (Lane& lane : lanes_) {
    lane.stage = Stage::kEnded;
    lane.call = 0;
  }
  std::vector<size_t> all(request_.gradients.size());
  std::iota(all.begin(), all.end(), size_t{0});
  FallBack(all, v1::FALLBACK_REASON_UNREACHABLE, Text(why));
}

StepEffects StepCore::Tick(absl::Time now) {
  StepEffects effects;
  for (Lane& lane : lanes_) TickLane(&lane, now, &effects);
  return effects;
}

void StepCore::TickLane(Lane* lane, absl::Time now, StepEffects* effects) {
  if (lane->stage == Stage::kEnded || !lane->waited) return;
  const bool in_flight = lane->call != 0;
  if (now >= lane->deadline || (!in_flight && now >= lane->call_deadline)) {
    Spent(lane, now);
  } else if (lane->stage == Stage::kPush && now >= lane->push_deadline) {
    NoteNotPushed(*lane, lane->last.ok() ? absl::DeadlineExceededError(
                                               "half the step budget is spent")
                                         : lane->last);
    Precondition(lane, now, effects);
  } else if (!in_flight && now >= lane->retry_at) {
    Send(lane, now, effects);
  }
}

absl::Time StepCore::next_wake() const {
  absl::Time wake = absl::InfiniteFuture();
  for (const Lane& lane : lanes_) {
    if (lane.stage == Stage::kEnded || !lane.waited) continue;
    wake = std::min(wake, lane.deadline);
    if (lane.stage == Stage::kPush) wake = std::min(wake, lane.push_deadline);
    if (lane.call != 0) continue;
    wake = std::min({wake, lane.retry_at, lane.call_deadline});
  }
  return wake;
}

bool StepCore::done() const {
  return std::none_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) {
    return lane.waited && lane.stage != Stage::kEnded;
  });
}

StepCore::Lane* StepCore::Find(uint64_t call) {
  for (Lane& lane : lanes_) {
    if (lane.call == call && call != 0) return &lane;
  }
  return nullptr;
}

// Whether this rank's commit is at `server` or on its way.
bool StepCore::Committed(const std::string& server) const {
  return std::any_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
    return lane.server == server &&
           (lane.delivered || lane.stage != Stage::kEnded);
  });
}

// Who is asked for `layer` by the assignment of `epoch`.
std::string StepCore::Route(int layer, uint64_t epoch,
                            const std::vector<int>& handed_over) const {
  return Contains(handed_over, layer)
             ? context_.routing->NewestOwner(layer)
             : context_.routing->Owner(layer, request_.step, epoch);
}

// Opens a lane to each owner of `items` as of `epoch`, and to other owners that
// have no commit yet: to every one at a factor step, to suspects always. A rank
// that never asked a suspect would never hear it.
void StepCore::OpenLanes(uint64_t epoch, const Items& items,
                         const std::vector<int>& handed_over, absl::Time now,
                         StepEffects* effects) {
  const RoutingTable& routing = *context_.routing;
  std::map<std::string, Items> by_owner;
  for (const size_t i : items.contributions) {
    const int layer = request_.contributions[i].item.layer();
    by_owner[Route(layer, epoch, handed_over)].contributions.push_back(i);
  }
  for (const size_t i : items.gradients) {
    const int layer = request_.gradients[i].item.layer();
    by_owner[Route(layer, epoch, handed_over)].gradients.push_back(i);
  }
  for (const std::string& server : routing.Owners(request_.step, epoch)) {
    if (!request_.ends_everywhere && !context_.suspects->Contains(server)) {
      continue;
    }
    if (!Committed(server)) by_owner[server];
  }
  for (const auto& [server, its_items] : by_owner) {
    if (server.empty()) {
      FallBack(its_items.gradients, v1::FALLBACK_REASON_NO_OWNER,
               absl::StrCat("no server owns it in epoch ", epoch));
    } else {
      OpenLane(server, epoch, its_items, now, effects);
    }
  }
}

void StepCore::OpenLane(const std::string& server, uint64_t epoch,
                        const Items& items, absl::Time now,
                        StepEffects* effects) {
  bool waited = true;
  if (context_.suspects->Contains(server)) {
    FallBack(items.gradients, v1::FALLBACK_REASON_UNREACHABLE,
             absl::StrCat("server '", server, "' is suspect"));
    if (!context_.suspects->TakeProbe(server, now)) return;
    waited = false;
  }
  const absl::Duration margin = std::min(context_.budget / 10, kLongestMargin);
  const uint64_t seed = context_.call.incarnation() + lanes_.size();
  Lane lane(Backoff(kFirstRetry, kLongestRetry, seed));
  lane.server = server;
  lane.epoch = epoch;
  lane.items = items;
  lane.waited = waited;
  lane.stage =
      items.contributions.empty() ? Stage::kPrecondition : Stage::kPush;
  lane.deadline =
      waited ? begin_ + context_.budget : now + kProbeInterval + margin;
  lane.call_deadline = lane.deadline - margin;
  lane.push_deadline =
      waited ? begin_ + context_.budget / 2 : lane.call_deadline;
  if (now >= lane.push_deadline) lane.push_deadline = lane.call_deadline;
  lane.had_time = now <= begin_ + context_.budget / 2 || WasAsked(server);
  lanes_.push_back(std::move(lane));
  if (now >= lanes_.back().call_deadline) {
    return GiveUp(&lanes_.back(),
                  absl::DeadlineExceededError(absl::StrCat(
                      "the step left no time to ask server '", server, "'")));
  }
  Send(&lanes_.back(), now, effects);
}

// Whether `server` had its time in this step and has not answered.
bool StepCore::WasAsked(const std::string& server) const {
  return std::any_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
    return lane.server == server && lane.had_time && !lane.last.ok();
  });
}

void StepCore::Send(Lane* lane, absl::Time now, StepEffects* effects) {
  lane->call = next_call_++;
  lane->retry_at = absl::InfiniteFuture();
  if (lane->stage == Stage::kPush) {
    SendPush(*lane, now, effects);
  } else {
    SendPrecondition(*lane, now, effects);
  }
}

v1::CallHeader StepCore::Header(const Lane& lane) const {
  v1::CallHeader header = context_.call;
  header.set_step(request_.step);
  header.set_epoch(lane.epoch);
  return header;
}

void StepCore::SendPush(const Lane& lane, absl::Time now,
                        StepEffects* effects) {
  PushCall call;
  call.target = {lane.server, context_.routing->Address(lane.server),
                 lane.push_deadline - now};
  *call.header.mutable_call() = Header(lane);
  call.header.set_damping(request_.damping);
  call.header.set_factor_decay(request_.factor_decay);
  for (const size_t i : lane.items.contributions) {
    *call.header.add_items() = request_.contributions[i].item;
    call.tensors.push_back(request_.contributions[i].values);
  }
  effects->pushes.push_back({lane.call, std::move(call)});
}

void StepCore::SendPrecondition(const Lane& lane, absl::Time now,
                                StepEffects* effects) {
  PreconditionCall call;
  call.target = {lane.server, context_.routing->Address(lane.server),
                 lane.call_deadline - now};
  *call.header.mutable_call() = Header(lane);
  call.header.set_end(request_.void_reason.empty() ? v1::STEP_END_COMMIT
                                                   : v1::STEP_END_VOID);
  call.header.set_void_reason(request_.void_reason);
  for (const size_t i : lane.items.gradients) {
    *call.header.add_items() = request_.gradients[i].item;
    call.tensors.push_back(request_.gradients[i].values);
  }
  effects->preconditions.push_back({lane.call, std::move(call)});
}

void StepCore::Precondition(Lane* lane, absl::Time now, StepEffects* effects) {
  lane->stage = Stage::kPrecondition;
  lane->last = absl::OkStatus();
  if (now >= lane->call_deadline) return Spent(lane, now);
  Send(lane, now, effects);
}

// Takes what every answer brings: a newer assignment, a sign of life.
void StepCore::Heard(Lane* lane, const CallEnd& end) {
  if (end.newer.has_value()) {
    // A malformed or older one changes nothing; then the call just failed.
    (void)context_.routing->Adopt(*end.newer);
  }
  if (!AsksToRetry(end.status) && !Unheard(end.status)) {
    context_.suspects->Heard(lane->server);
    lane->last = absl::OkStatus();
  }
}

// By a newer assignment, or since the server has handed layers over already,
// though the newest one names it for this step.
bool StepCore::Reroutable(const Lane& lane, const CallEnd& end) const {
  const RoutingTable& routing = *context_.routing;
  if (!absl::IsAborted(end.status)) return false;
  if (routing.held_epoch() > lane.epoch) return true;
  return std::any_of(end.elsewhere.begin(), end.elsewhere.end(),
                     [&](int layer) {
                       return layer >= 0 && layer < routing.num_layers() &&
                              routing.NewestOwner(layer) != lane.server;
                     });
}

// Ends the lane and sends what it still has by the newest assignment.
void StepCore::Reroute(size_t index, const std::vector<int>& elsewhere,
                       absl::Time now, StepEffects* effects) {
  Lane& lane = lanes_[index];
  const uint64_t epoch = context_.routing->held_epoch();
  // Of an older assignment it says nothing about the newest one.
  const std::vector<int> handed_over =
      lane.epoch == epoch ? elsewhere : std::vector<int>();
  lane.stage = Stage::kEnded;
  lane.call = 0;
  if (!lane.waited) return;
  Items items;
  for (const size_t i : lane.items.contributions) {
    const int layer = request_.contributions[i].item.layer();
    const bool stays = Route(layer, epoch, handed_over) == lane.server;
    if (!stays || !lane.pushed) items.contributions.push_back(i);
  }
  for (const size_t i : lane.items.gradients) {
    if (!answered_[i]) items.gradients.push_back(i);
  }
  OpenLanes(epoch, items, handed_over, now, effects);
}

void StepCore::RetryLater(Lane* lane, const absl::Status& status,
                          absl::Time now) {
  lane->last = status;
  if (!lane->waited) {
    context_.suspects->Add(lane->server, now, Text(status));
    lane->stage = Stage::kEnded;
  } else if (!context_.routing->NewestNeeds(lane->server)) {
    // Only steps before from_step go there, and its layers are lost: nothing
    // comes of asking again.
    if (lane->stage == Stage::kPush) NoteNotPushed(*lane, status);
    GiveUp(lane, status);
  } else {
    lane->retry_at = now + lane->backoff.Next();
  }
}

void StepCore::GiveUp(Lane* lane, const absl::Status& status) {
  lane->stage = Stage::kEnded;
  lane->call = 0;
  FallBack(lane->items.gradients, v1::FALLBACK_REASON_UNREACHABLE,
           Text(status));
}

void StepCore::Spent(Lane* lane, absl::Time now) {
  absl::Status status = lane->last;
  if (status.ok()) {
    status = absl::DeadlineExceededError(absl::StrCat(
        "server '", lane->server, "' did not answer within the step budget of ",
        absl::FormatDuration(context_.budget)));
  }
  if (lane->had_time) {
    context_.suspects->Add(lane->server, now, Text(status));
  }
  GiveUp(lane, status);
}

void StepCore::FallBack(const std::vector<size_t>& gradients,
                        v1::FallbackReason reason, const std::string& message) {
  for (const size_t i : gradients) {
    if (answered_[i]) continue;
    answered_[i] = true;
    v1::LayerReply& reply = answer_.layers[i].reply;
    reply.set_layer(request_.gradients[i].item.layer());
    reply.set_outcome(v1::LAYER_OUTCOME_FALLBACK);
    reply.set_reason(reason);
    reply.set_message(message);
  }
}

void StepCore::NoteRefused(const Lane& lane,
                           const v1::PushFactorsResponse& response) {
  for (const v1::ContributionResult& result : response.results()) {
    if (result.outcome() == v1::CONTRIBUTION_OUTCOME_ACCEPTED ||
        result.outcome() == v1::CONTRIBUTION_OUTCOME_DUPLICATE) {
      continue;
    }
    answer_.refused.push_back(absl::StrCat(
        "layer ", result.layer(), ", factor ", Letter(result.kind()),
        ", server '", lane.server, "': ", result.message()));
  }
}

void StepCore::NoteNotPushed(const Lane& lane, const absl::Status& status) {
  answer_.refused.push_back(absl::StrCat(lane.items.contributions.size(),
                                         " factors did not reach server '",
                                         lane.server, "': ", Text(status)));
}

}  // namespace kronserve::client
