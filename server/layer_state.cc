#include "server/layer_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace kronserve::server {
namespace {

Answer Fallback(v1::FallbackReason reason, std::string message) {
  Answer answer;
  answer.kind = Answer::Kind::kFallback;
  answer.reason = reason;
  answer.message = std::move(message);
  return answer;
}

void DescribePublished(const Published& published, int64_t published_for,
                       v1::SnapshotPublished* meta) {
  const curvature::Factorization<float>& result = published.factorization;
  meta->set_method(result.method == curvature::Method::kEigen
                       ? v1::COMPUTE_METHOD_EIGEN
                       : v1::COMPUTE_METHOD_INVERSE);
  meta->set_damping_form(result.form == curvature::DampingForm::kExact
                             ? v1::DAMPING_FORM_EXACT
                             : v1::DAMPING_FORM_FACTORED);
  meta->set_version(published.version);
  meta->set_factor_step(published.factor_step);
  meta->set_published_for(published_for);
  meta->set_damping(result.damping);
  meta->set_damping_a(result.split.gamma_a);
  meta->set_damping_g(result.split.gamma_g);
  meta->set_pi(result.split.pi);
  meta->set_pi_clipped(result.split.clipped);
  meta->set_rung(ToProto(result.rung));
}

}  // namespace

LayerState::LayerState(const LayerRules& rules, std::vector<int> contributors,
                       int64_t closed_through)
    : rules_(rules),
      rounds_(rules.rounds, std::move(contributors), closed_through) {}

void LayerState::QueueMerge(ClosedRound closed) {
  const int64_t step = closed.step;
  merges_.push_back({std::move(closed), step});
}

ClosedRound LayerState::DropOldestMerge() {
  ClosedRound closed = std::move(merges_.front().closed);
  merges_.pop_front();
  // The others of the round were counted when it closed.
  const int64_t late = closed.counts.merged;
  closed.counts = {};
  closed.counts.late = late;
  closed.how = CloseAs::kDrop;
  return closed;
}

std::optional<MergeInput> LayerState::StartMerge(int64_t through) {
  if (merging_ || merges_.empty()) return std::nullopt;
  if (merges_.front().order_step > through) return std::nullopt;
  merging_ = true;
  const ClosedRound& closed = merges_.front().closed;
  MergeInput input;
  input.d_in = rules_.d_in;
  input.d_out = rules_.d_out;
  input.scale_a = rules_.scale_a;
  input.scale_g = rules_.scale_g;
  input.init = rules_.init;
  input.factor_decay = closed.factor_decay;
  input.k = updates_ + 1;
  input.a = closed.a;
  input.g = closed.g;
  input.before = averages_;
  return input;
}

ClosedRound LayerState::FinishMerge(absl::StatusOr<Averages> result) {
  PendingMerge merge = std::move(merges_.front());
  merges_.pop_front();
  merging_ = false;
  if (!result.ok()) return std::move(merge.closed);
  averages_ = *std::move(result);
  if (updates_ == 0) first_step_ = std::max<int64_t>(merge.order_step, 0);
  ++updates_;
  factor_step_ = merge.closed.step;
  damping_ = merge.closed.damping;
  return std::move(merge.closed);
}

int64_t LayerState::SettledThrough() const {
  const int64_t closed_through = rounds_.closed_through();
  if (merges_.empty()) return closed_through;
  return std::min(closed_through, merges_.front().order_step - 1);
}

int64_t LayerState::DueAndSettled(int64_t step) const {
  const int64_t settled = SettledThrough();
  if (settled < 0) return -1;
  const int64_t last_covered =
      curvature::LastFactorStep(rules_.intervals, settled) +
      rules_.intervals.factor_update_steps - 1;
  return curvature::DueStep(rules_.intervals, rules_.phase, first_step_,
                            std::min(step, last_covered));
}

std::optional<RefreshInput> LayerState::StartRefresh(int64_t step) {
  if (updates_ == 0 || refreshing_.has_value()) return std::nullopt;
  const int64_t due = DueAndSettled(step);
  if (due <= published_for_ || due <= failed_for_) return std::nullopt;
  if (published_ != nullptr && published_->version == updates_) {
    published_for_ = due;
    return std::nullopt;
  }
  refreshing_ = RunningRefresh{due, updates_, factor_step_};
  RefreshInput input;
  input.d_in = rules_.d_in;
  input.d_out = rules_.d_out;
  input.averages = averages_;
  input.options = {rules_.method, rules_.form, damping_};
  return input;
}

void LayerState::FinishRefresh(
    absl::StatusOr<curvature::Factorization<float>> result) {
  const RunningRefresh refresh = *refreshing_;
  refreshing_.reset();
  if (!result.ok()) {
    failed_for_ = refresh.due;
    failure_ = std::string(result.status().message());
    return;
  }
  published_ = std::make_shared<const Published>(
      Published{*std::move(result), refresh.version, refresh.factor_step});
  published_for_ = refresh.due;
}

Answer LayerState::FromPublished(int64_t step) const {
  const curvature::Factorization<float>& factorization =
      published_->factorization;
  Answer answer;
  answer.kind = Answer::Kind::kPrecondition;
  answer.basis = published_;
  answer.age = step - published_->factor_step;
  answer.rung = failed_for_ > published_for_ ? v1::REFRESH_RUNG_LAST_GOOD
                                             : ToProto(factorization.rung);
  // The eigen form takes new damping at once, unless the refresh had to raise
  // it to succeed at all.
  const bool newest = rules_.method == curvature::Method::kEigen &&
                      factorization.rung != curvature::Rung::kMoreDamping;
  answer.damping = newest ? damping_ : factorization.damping;
  return answer;
}

Answer LayerState::Fresh(int64_t step) const {
  const int64_t settled = SettledThrough();
  const int64_t round = curvature::LastFactorStep(rules_.intervals, step);
  if (updates_ == 0) {
    if (settled < round) return {};
    return Fallback(v1::FALLBACK_REASON_NO_FACTORS,
                    absl::StrCat("no factor of layer '", rules_.name,
                                 "' was merged up to step ", step));
  }
  // New damping acts at the next answer of the eigen form: a synchronous job
  // waits for the round that may bring it, so that the answer is always the
  // same one.
  if (rules_.max_staleness == 0 && rules_.method == curvature::Method::kEigen &&
      settled < round) {
    return {};
  }
  const int64_t need = std::max(
      first_step_,
      curvature::DueStep(rules_.intervals, rules_.phase, first_step_,
                         std::max<int64_t>(step - rules_.max_staleness, 0)));
  if (published_ != nullptr && published_for_ >= need) {
    return FromPublished(step);
  }
  if (failed_for_ >= need) {
    return Fallback(v1::FALLBACK_REASON_REFRESH_FAILED,
                    absl::StrCat("layer '", rules_.name, "', refresh of step ",
                                 failed_for_, ": ", failure_));
  }
  return {};
}

Answer LayerState::Keep(int64_t step, Answer answer) {
  given_ = Given{step, answer};
  return answer;
}

Answer LayerState::Decide(int64_t step, const StepLedger& ledger) {
  if (const std::string* reason = ledger.VoidReason(step)) {
    return Fallback(v1::FALLBACK_REASON_VOID,
                    absl::StrCat("step ", step, " is void: ", *reason));
  }
  if (given_.has_value() && given_->step == step) return given_->answer;
  if (given_.has_value() && given_->step > step) {
    return Fallback(
        v1::FALLBACK_REASON_NOT_READY,
        absl::StrCat("layer '", rules_.name, "': step ", step,
                     " is over, step ", given_->step, " was answered"));
  }
  Answer answer = Fresh(step);
  if (answer.kind == Answer::Kind::kWait) return answer;
  return Keep(step, std::move(answer));
}

Answer LayerState::GiveUp(int64_t step) {
  const int64_t round = curvature::LastFactorStep(rules_.intervals, step);
  std::string message = absl::StrCat("layer '", rules_.name, "', step ", step);
  if (given_.has_value() && given_->step == step) {
    absl::StrAppend(&message, ": the answer was not computed in time");
  } else if (SettledThrough() < round) {
    absl::StrAppend(&message, ": the round of step ", round,
                    " was not merged in time");
  } else {
    absl::StrAppend(&message, ": the refresh was not ready in time");
  }
  return Keep(step,
              Fallback(v1::FALLBACK_REASON_NOT_READY, std::move(message)));
}

// The world may train steps again that the averages have already seen.
void LayerState::ForgetLaterSteps(int64_t start_step) {
  if (published_ != nullptr) published_for_ = start_step - 1;
  first_step_ = std::min(first_step_, start_step);
  failed_for_ = -1;
}

std::vector<ClosedRound> LayerState::StartWorld(std::vector<int> contributors,
                                                int64_t start_step) {
  for (PendingMerge& merge : merges_) merge.order_step = start_step - 1;
  if (refreshing_.has_value()) refreshing_->due = start_step - 1;
  ForgetLaterSteps(start_step);
  given_.reset();
  return rounds_.Restart(std::move(contributors), start_step - 1);
}

LayerContents LayerState::Contents(int64_t through) const {
  LayerContents contents;
  contents.averages = averages_;
  contents.published = published_;
  v1::LayerSnapshot& meta = contents.meta;
  meta.set_closed_through(std::min(SettledThrough(), through));
  meta.set_updates(updates_);
  meta.set_first_step(first_step_);
  meta.set_factor_step(factor_step_);
  meta.set_damping(damping_);
  if (published_ != nullptr) {
    DescribePublished(*published_, published_for_, meta.mutable_published());
  }
  meta.set_failed_for(failed_for_);
  meta.set_failure(failure_);
  for (auto& identity : rounds_.Closed(meta.closed_through())) {
    *meta.add_closed() = std::move(identity);
  }
  return contents;
}

std::vector<ClosedRound> LayerState::Install(const LayerContents& contents,
                                             bool same_world) {
  const v1::LayerSnapshot& meta = contents.meta;
  const int64_t start_step = rounds_.closed_through() + 1;
  averages_ = contents.averages;
  published_ = contents.published;
  updates_ = meta.updates();
  first_step_ = meta.first_step();
  factor_step_ = meta.factor_step();
  damping_ = meta.damping();
  published_for_ = meta.published().published_for();
  failed_for_ = meta.failed_for();
  failure_ = meta.failure();
  if (published_ == nullptr) published_for_ = -1;
  if (same_world) return InstallRounds(meta);
  if (meta.closed_through() >= start_step) ForgetLaterSteps(start_step);
  return {};
}

// What the old owner had closed is closed here.
std::vector<ClosedRound> LayerState::InstallRounds(
    const v1::LayerSnapshot& meta) {
  std::vector<ClosedRound> dropped =
      rounds_.Install(meta.closed_through(), meta.closed());
  while (!merges_.empty() &&
         merges_.front().order_step <= meta.closed_through()) {
    dropped.push_back(DropOldestMerge());
  }
  return dropped;
}

LayerState::Staged LayerState::ReleaseStaged() {
  Staged staged;
  for (const PendingMerge& merge : merges_) {
    staged.contributions += merge.closed.counts.merged;
    staged.bytes += merge.closed.staged_bytes;
  }
  for (const ClosedRound& closed :
       rounds_.Restart(rounds_.contributors(), rounds_.closed_through())) {
    staged.contributions += closed.counts.late;
    staged.empty += closed.counts.empty;
    staged.bytes += closed.staged_bytes;
  }
  return staged;
}

}  // namespace kronserve::server
