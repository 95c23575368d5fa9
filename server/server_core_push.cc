// ServerCore: contributions come in.

#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "curvature/refresh_policy.h"
#include "linalg/packed_triangle.h"
#include "server/server_core.h"

namespace kronserve::server {
namespace {

// A packed triangle of a larger side does not fit 63 bits of bytes.
constexpr int64_t kMaxClaimedDim = int64_t{1} << 30;
// So that the rows of any world add up in 64 bits.
constexpr int64_t kMaxRows = int64_t{1} << 40;

absl::Status CheckPushHeader(const v1::PushFactorsHeader& header) {
  if (!std::isfinite(header.damping()) || header.damping() < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "damping is ", header.damping(), "; expected finite, at least 0"));
  }
  const double decay = header.factor_decay();
  if (!(decay >= 0 && decay < 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "factor_decay is ", decay, "; expected at least 0 and below 1"));
  }
  return absl::OkStatus();
}

v1::ContributionResult MakeResult(const v1::ContributionItem& item,
                                  v1::ContributionOutcome outcome,
                                  const absl::Status& status = {}) {
  v1::ContributionResult result;
  result.set_layer(item.layer());
  result.set_kind(item.kind());
  result.set_outcome(outcome);
  result.set_code(static_cast<int>(status.code()));
  result.set_message(std::string(status.message()));
  return result;
}

v1::ContributionResult Refused(const v1::ContributionItem& item,
                               const absl::Status& status) {
  return MakeResult(item, v1::CONTRIBUTION_OUTCOME_REFUSED, status);
}

int64_t SideOf(const LayerRules& rules, v1::FactorKind kind) {
  return kind == v1::FACTOR_KIND_INPUT ? rules.d_in : rules.d_out;
}

int64_t DivisorOf(const v1::ContributionItem& item) {
  return item.kind() == v1::FACTOR_KIND_INPUT ? item.loss_rows() : item.rows();
}

bool IsRowCount(int64_t rows) { return rows >= 1 && rows <= kMaxRows; }

// Checks what an item says about its data.
absl::Status CheckItem(const LayerState& layer,
                       const v1::ContributionItem& item, int64_t step) {
  if (item.body() == v1::CONTRIBUTION_BODY_UNSPECIFIED ||
      !v1::ContributionBody_IsValid(item.body())) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameContribution(layer, item.kind(), step), ": body is ",
                     item.body(), ", which is not known"));
  }
  if (item.body() != v1::CONTRIBUTION_BODY_DATA) return absl::OkStatus();
  const int64_t side = SideOf(layer.rules(), item.kind());
  if (item.dim() != side) {
    return absl::InvalidArgumentError(absl::StrCat(
        NameContribution(layer, item.kind(), step), " is ", item.dim(), "x",
        item.dim(), ", registered ", side, "x", side));
  }
  if (!IsRowCount(item.loss_rows()) || !IsRowCount(item.rows())) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameContribution(layer, item.kind(), step), ": loss_rows ",
                     item.loss_rows(), " and rows ", item.rows(),
                     ", expected 1 to ", kMaxRows));
  }
  return absl::OkStatus();
}

// Expected elements of an item that will be dropped: enough to skip its chunks
// when its size makes sense at all.
int64_t ClaimedElements(const v1::ContributionItem& item) {
  if (item.body() != v1::CONTRIBUTION_BODY_DATA) return 0;
  if (item.dim() < 1 || item.dim() > kMaxClaimedDim) return 0;
  return linalg::PackedSize(item.dim());
}

}  // namespace

// Everything that can be said of an item before its data. Does not change
// anything.
ServerCore::Screened ServerCore::ScreenItem(JobState& job,
                                            const v1::PushFactorsHeader& header,
                                            const v1::ContributionItem& item) {
  Screened screened;
  const int64_t step = header.call().step();
  const int rank = header.call().rank();
  HeldLayer* layer = job.FindLayer(item.layer());
  if (layer == nullptr) {
    screened.answer = Refused(
        item, absl::NotFoundError(absl::StrCat(
                  "layer ", item.layer(), ": job '", job.name(), "' has ",
                  job.config().layers_size(), " layers, from 0")));
    return screened;
  }
  const LayerState& state = layer->state;
  const LayerRounds& rounds = state.rounds();
  if (item.kind() != v1::FACTOR_KIND_INPUT &&
      item.kind() != v1::FACTOR_KIND_OUTPUT) {
    screened.answer =
        Refused(item, absl::InvalidArgumentError(absl::StrCat(
                          "layer '", state.rules().name, "', step ", step,
                          ": kind is ", item.kind(), ", which is not known")));
    return screened;
  }
  const std::string what = NameContribution(state, item.kind(), step);
  if (!curvature::IsFactorStep(state.rules().intervals, step)) {
    screened.answer = Refused(
        item,
        absl::InvalidArgumentError(absl::StrCat(
            what, ": factors are due every ",
            state.rules().intervals.factor_update_steps, " steps, not here")));
    return screened;
  }
  if (!rounds.Expects(rank)) {
    screened.answer = Refused(
        item, absl::InvalidArgumentError(absl::StrCat(
                  what, ": rank ", rank, " is no contributor, these are: ",
                  absl::StrJoin(rounds.contributors(), ", "))));
    return screened;
  }
  if (const Contribution* known = rounds.Find(step, rank, item.kind())) {
    screened.answer =
        known->body == Contribution::Body::kRefused
            ? Refused(item, known->refusal)
            : MakeResult(item, v1::CONTRIBUTION_OUTCOME_DUPLICATE);
    screened.is_repeat = true;
    return screened;
  }
  if (step <= rounds.closed_through()) {
    if (job.ledger().VoidReason(step) != nullptr) {
      screened.answer = MakeResult(item, v1::CONTRIBUTION_OUTCOME_ACCEPTED);
      screened.is_void = true;
    } else {
      screened.answer =
          MakeResult(item, v1::CONTRIBUTION_OUTCOME_LATE,
                     absl::FailedPreconditionError(absl::StrCat(
                         what, " is late: the layer is closed through step ",
                         rounds.closed_through())));
    }
    return screened;
  }
  absl::Status status = CheckItem(state, item, step);
  if (status.ok()) {
    status =
        rounds.CheckSettings(step, header.damping(), header.factor_decay());
    if (!status.ok()) {
      status = absl::InvalidArgumentError(
          absl::StrCat(what, ": ", std::string(status.message())));
    }
  }
  if (!status.ok()) {
    screened.answer = Refused(item, status);
    screened.takes_place = true;
  }
  return screened;
}

absl::StatusOr<PushTicket> ServerCore::BeginPush(
    const v1::PushFactorsHeader& header, absl::Time now, Effects* effects) {
  KRONSERVE_ASSIGN_OR_RETURN(JobState* const job,
                             FindJob(header.call(), now, effects));
  KRONSERVE_RETURN_IF_ERROR(CheckPushHeader(header));
  KRONSERVE_RETURN_IF_ERROR(
      CheckOwners(*job, header.call(), header.items(), effects));
  PushTicket ticket;
  for (const v1::ContributionItem& item : header.items()) {
    ChunkAssembler::Slot slot;
    slot.keep = !ScreenItem(*job, header, item).answer.has_value();
    slot.elements = ClaimedElements(item);
    if (slot.keep) {
      ticket.reserved_bytes +=
          slot.elements * static_cast<int64_t>(sizeof(float));
    }
    ticket.slots.push_back(slot);
  }
  if (const absl::Status status = staging_.Reserve(ticket.reserved_bytes);
      !status.ok()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "push of job '", job->name(), "', step ", header.call().step(), ": ",
        std::string(status.message())));
  }
  return ticket;
}

void ServerCore::AbandonPush(const PushTicket& ticket) {
  staging_.Release(ticket.reserved_bytes);
}

// Records a refusal in the item's round, where it counts as empty.
v1::ContributionResult ServerCore::Refuse(JobState& job,
                                          const v1::PushFactorsHeader& header,
                                          const v1::ContributionItem& item,
                                          const absl::Status& why,
                                          absl::Time now) {
  counters_.set_contributions_refused(counters_.contributions_refused() + 1);
  Contribution contribution;
  contribution.body = Contribution::Body::kRefused;
  contribution.refusal = why;
  LayerRounds& rounds = job.FindLayer(item.layer())->state.rounds();
  rounds.Open(header.call().step(), now)
      .Add(header.call().rank(), item.kind(), std::move(contribution));
  return Refused(item, why);
}

v1::ContributionResult ServerCore::StageItem(
    JobState& job, const v1::PushFactorsHeader& header,
    const v1::ContributionItem& item, const CheckedTensor& tensor,
    absl::Time now) {
  const Screened screened = ScreenItem(job, header, item);
  if (screened.takes_place) {
    const auto code = static_cast<absl::StatusCode>(screened.answer->code());
    return Refuse(job, header, item,
                  absl::Status(code, screened.answer->message()), now);
  }
  if (screened.answer.has_value()) {
    CountAnswered(job, header, item, screened);
    return *screened.answer;
  }
  HeldLayer* layer = job.FindLayer(item.layer());
  const int64_t step = header.call().step();
  if (!tensor.status.ok()) {
    return Refuse(job, header, item,
                  absl::InvalidArgumentError(absl::StrCat(
                      "job '", job.name(), "', ",
                      NameContribution(layer->state, item.kind(), step), ": ",
                      std::string(tensor.status.message()))),
                  now);
  }
  Contribution contribution;
  if (item.body() == v1::CONTRIBUTION_BODY_DATA) {
    contribution.body = Contribution::Body::kData;
    contribution.rows = DivisorOf(item);
    contribution.sum = tensor.tensor;
    staging_.Hold(static_cast<int64_t>(tensor.tensor->size() * sizeof(float)));
  }
  Round& round = layer->state.rounds().Open(step, now);
  round.SetSettings(header.damping(), header.factor_decay());
  round.Add(header.call().rank(), item.kind(), std::move(contribution));
  return MakeResult(item, v1::CONTRIBUTION_OUTCOME_ACCEPTED);
}

// Counts an item that was answered without taking a place in its round.
void ServerCore::CountAnswered(JobState& job,
                               const v1::PushFactorsHeader& header,
                               const v1::ContributionItem& item,
                               const Screened& screened) {
  if (screened.is_repeat) {
    counters_.set_contributions_duplicate(counters_.contributions_duplicate() +
                                          1);
  } else if (screened.is_void) {
    counters_.set_contributions_void(counters_.contributions_void() + 1);
    job.FindLayer(item.layer())
        ->state.rounds()
        .Remember(header.call().step(), header.call().rank(), item.kind(), {});
  } else if (screened.answer->outcome() == v1::CONTRIBUTION_OUTCOME_LATE) {
    counters_.set_contributions_late(counters_.contributions_late() + 1);
  } else {
    counters_.set_contributions_refused(counters_.contributions_refused() + 1);
  }
}

absl::StatusOr<v1::PushFactorsResponse> ServerCore::StagePush(
    const PushTicket& ticket, const v1::PushFactorsHeader& header,
    const std::vector<CheckedTensor>& tensors, absl::Time now,
    Effects* effects) {
  AbandonPush(ticket);  // Each staged item holds its own bytes from here on.
  KRONSERVE_ASSIGN_OR_RETURN(JobState* const job,
                             FindJob(header.call(), now, effects));
  KRONSERVE_RETURN_IF_ERROR(
      CheckOwners(*job, header.call(), header.items(), effects));
  v1::PushFactorsResponse response;
  response.set_epoch(job->epoch());
  std::set<int> touched;
  for (int i = 0; i < header.items_size(); ++i) {
    const v1::ContributionItem& item = header.items(i);
    v1::ContributionResult result =
        StageItem(*job, header, item, tensors[i], now);
    if (result.outcome() == v1::CONTRIBUTION_OUTCOME_REFUSED) {
      effects->warnings.push_back(absl::StrCat("contribution refused: rank ",
                                               header.call().rank(), ": ",
                                               result.message()));
    }
    *response.add_results() = std::move(result);
    if (job->FindLayer(item.layer()) != nullptr) touched.insert(item.layer());
  }
  for (int index : touched) {
    Advance(*job, *job->FindLayer(index), now, effects);
  }
  return response;
}

}  // namespace kronserve::server
