#include "worker/session.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/include/kronserve/client.h"
#include "common/checksum.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "curvature/refresh_policy.h"
#include "linalg/backend.h"
#include "placement/delegates.h"
#include "worker/answer_broadcast.h"
#include "worker/factor_accumulator.h"
#include "worker/factor_exchange.h"
#include "worker/gradient_replacer.h"
#include "worker/session_dependencies.h"
#include "worker/session_options.h"
#include "worker/step_ballot.h"
#include "worker/step_vote.h"

namespace kronserve::worker {
namespace {

using ::kronserve::curvature::ConvGeometry;
using ::kronserve::curvature::LayerShape;
using ::kronserve::linalg::ConstMatrixView;
using ::kronserve::linalg::MatrixView;

// The scheduler's board as the place where the ranks of a group meet.
class BoardRendezvous final : public Rendezvous {
 public:
  explicit BoardRendezvous(client::RendezvousBoard* board) : board_(board) {}
  absl::Status Put(const std::string& key, const std::string& value) override {
    return board_->Put(key, value);
  }
  absl::StatusOr<std::vector<std::string>> Get(
      const std::vector<std::string>& keys, absl::Duration timeout) override {
    return board_->Get(keys, timeout);
  }

 private:
  client::RendezvousBoard* const board_;
};

Tensor CopyOf(const float* values, int64_t n) {
  return std::make_shared<const std::vector<float>>(values, values + n);
}

Tensor MoveToTensor(std::vector<float>* values) {
  return std::make_shared<const std::vector<float>>(std::move(*values));
}

uint64_t ChecksumOf(const Tensor& tensor) {
  return Checksum(tensor->data(), tensor->size() * sizeof(float));
}

// What a rank is made of once it has joined.
struct Parts {
  SessionOptions options;
  std::vector<LayerShape> layers;
  const Clock* clock;
  linalg::LinearAlgebra<float> tools;
  std::unique_ptr<client::Client> client;
  placement::Delegates delegates;
  std::vector<int> node_ranks;
  std::unique_ptr<Communicator> job_group;
  std::unique_ptr<Communicator> node_group;  // Null where nobody gathers.
};

class JoinedSession final : public Session {
 public:
  explicit JoinedSession(Parts parts)
      : parts_(std::move(parts)),
        intervals_(IntervalsOf(parts_.options.job_options)),
        next_step_(start_step()),
        accumulator_(parts_.layers, parts_.tools.kernels.get()),
        exchange_(
            parts_.layers, parts_.delegates,
            {parts_.node_ranks, parts_.options.rank, parts_.node_group.get()},
            parts_.tools.kernels.get()),
        broadcast_(parts_.layers, parts_.delegates.gradient_rank,
                   parts_.options.rank),
        replacer_(FallbackOf(parts_.options.job_options), num_layers(),
                  parts_.tools.kernels.get()) {
    parts_.client->OnLost([this] { AbortGroups(); });
  }
  ~JoinedSession() override { parts_.client->OnLost(nullptr); }

  Communicator& job_group() override { return *parts_.job_group; }
  int64_t start_step() const override {
    return parts_.client->joined().world().start_step();
  }
  int64_t restart_count() const override {
    return parts_.client->joined().world().restart_count();
  }
  uint64_t plan_hash() const override {
    return parts_.client->joined().plan_hash();
  }

  bool NeedsStatistics(int64_t step, int layer) const override {
    return layer >= 0 && layer < num_layers() &&
           curvature::IsFactorStep(intervals_, step) &&
           parts_.delegates.collector[layer][parts_.options.rank] >= 0;
  }

  absl::Status AccumulateLinear(int layer, ConstMatrixView<float> inputs,
                                ConstMatrixView<float> hook_gradients,
                                int64_t loss_rows) override {
    if (!NeedsStatistics(next_step_, layer)) {
      return accumulator_.CheckLinear(layer, inputs, hook_gradients, loss_rows);
    }
    return accumulator_.AddLinear(layer, inputs, hook_gradients, loss_rows);
  }

  absl::Status AccumulateConv(int layer, const ConvGeometry& geometry,
                              ConstMatrixView<float> images,
                              ConstMatrixView<float> hook_gradients,
                              int64_t loss_rows) override {
    if (!NeedsStatistics(next_step_, layer)) {
      return accumulator_.CheckConv(layer, geometry, images, hook_gradients,
                                    loss_rows);
    }
    return accumulator_.AddConv(layer, geometry, images, hook_gradients,
                                loss_rows);
  }

  absl::StatusOr<StepResult> Step(
      int64_t step, const StepSettings& settings,
      const std::vector<MatrixView<float>>& gradients) override;

  absl::Status Finish() override { return parts_.client->Finish(); }

 private:
  int num_layers() const { return static_cast<int>(parts_.layers.size()); }

  // Ends what this rank waits for: nobody of the old world will come.
  void AbortGroups() {
    parts_.job_group->Abort();
    if (parts_.node_group != nullptr) parts_.node_group->Abort();
  }

  void PreferReasonOfScheduler();
  absl::Status Agree(const StepSettings& settings,
                     const std::vector<MatrixView<float>>& gradients,
                     std::vector<client::LayerAnswer>* own,
                     std::vector<HeldAnswer>* held, StepDecision* decision);
  client::StepRequest BuildRequest(
      const StepSettings& settings,
      const std::vector<MatrixView<float>>& gradients,
      std::vector<LayerStatistics> statistics) const;
  void AddContributions(int layer, LayerStatistics statistics,
                        client::StepRequest* request) const;
  void Report(const std::vector<HeldAnswer>& held, const StepDecision& decision,
              StepResult* result) const;
  void LogFallbacks(int64_t step, const StepResult& result);
  void LogRefused(int64_t step, const std::vector<std::string>& refused);

  Parts parts_;
  const curvature::RefreshIntervals intervals_;
  int64_t next_step_;
  absl::Status broken_;  // Why the job group is finished; OK while it lives.
  FactorAccumulator accumulator_;
  FactorExchange exchange_;
  AnswerBroadcast broadcast_;
  GradientReplacer replacer_;
  std::string fallen_;        // Layers that fell back, as last logged.
  bool was_refused_ = false;  // Contributions, at the last factor step.
};

// What it says of a lost world tells more than that the group was aborted,
// whichever is heard first.
void JoinedSession::PreferReasonOfScheduler() {
  const absl::Status lost = parts_.client->lost();
  if (!lost.ok()) broken_ = absl::UnavailableError(lost.message());
}

absl::StatusOr<StepResult> JoinedSession::Step(
    int64_t step, const StepSettings& settings,
    const std::vector<MatrixView<float>>& gradients) {
  PreferReasonOfScheduler();
  if (!broken_.ok()) return broken_;
  if (step != next_step_) {
    return absl::InvalidArgumentError(
        absl::StrCat("step is ", step, ", expected ", next_step_));
  }
  KRONSERVE_RETURN_IF_ERROR(ValidateStep(settings, parts_.layers, gradients));
  parts_.client->ReportStep(step);
  StepResult result;
  if (num_layers() == 0) {
    ++next_step_;
    return result;
  }
  const absl::Time begin = parts_.clock->Now();
  result.epoch = parts_.client->used_epoch();
  std::vector<client::LayerAnswer> own;  // `held` points into it.
  std::vector<HeldAnswer> held;
  StepDecision decision;
  broken_ = Agree(settings, gradients, &own, &held, &decision);
  if (!broken_.ok()) {
    PreferReasonOfScheduler();
    return broken_;
  }
  result.waited = parts_.clock->Now() - begin;
  Report(held, decision, &result);
  LogFallbacks(step, result);
  ++next_step_;
  if (decision.voided) return result;
  std::vector<AgreedLayer> agreed(held.size());
  for (size_t i = 0; i < held.size(); ++i) {
    if (!decision.preconditioned[i]) continue;
    agreed[i] = {held[i].values, held[i].inner_product};
  }
  result.nu = replacer_.Replace(
      agreed, {settings.lr, settings.kl_clip, settings.damping}, gradients);
  return result;
}

// The part of a step in which this rank waits for servers and other ranks.
absl::Status JoinedSession::Agree(
    const StepSettings& settings,
    const std::vector<MatrixView<float>>& gradients,
    std::vector<client::LayerAnswer>* own, std::vector<HeldAnswer>* held,
    StepDecision* decision) {
  std::vector<LayerStatistics> statistics = accumulator_.TakeAll();
  if (curvature::IsFactorStep(intervals_, next_step_)) {
    // A void rank stays in the exchange: the others do not know of it yet.
    if (!settings.void_reason.empty()) statistics.assign(num_layers(), {});
    KRONSERVE_RETURN_IF_ERROR(exchange_.Run(&statistics));
  }
  client::StepAnswer answer = parts_.client->RunStep(
      BuildRequest(settings, gradients, std::move(statistics)));
  LogRefused(next_step_, answer.refused);

  own->resize(num_layers());
  for (client::LayerAnswer& layer : answer.layers) {
    (*own)[layer.reply.layer()] = std::move(layer);
  }
  KRONSERVE_RETURN_IF_ERROR(
      broadcast_.Run(*parts_.job_group, *parts_.tools.kernels, *own, held));
  const StepBallot ballot =
      MakeBallot(*held, parts_.client->SilentOwners(next_step_),
                 parts_.client->held_epoch(), !settings.void_reason.empty());
  KRONSERVE_ASSIGN_OR_RETURN(*decision, VoteStep(*parts_.job_group, ballot));
  parts_.client->TakeVote(next_step_, decision->owner_silent, decision->epoch);
  return absl::OkStatus();
}

client::StepRequest JoinedSession::BuildRequest(
    const StepSettings& settings,
    const std::vector<MatrixView<float>>& gradients,
    std::vector<LayerStatistics> statistics) const {
  client::StepRequest request;
  request.step = next_step_;
  request.ends_everywhere = curvature::IsFactorStep(intervals_, next_step_);
  request.void_reason = settings.void_reason;
  request.damping = settings.damping;
  request.factor_decay = settings.factor_decay;
  if (!settings.void_reason.empty()) return request;
  const int rank = parts_.options.rank;
  for (int layer = 0; layer < num_layers(); ++layer) {
    const std::vector<int>& contributors = parts_.delegates.contributors[layer];
    if (request.ends_everywhere &&
        std::binary_search(contributors.begin(), contributors.end(), rank)) {
      AddContributions(layer, std::move(statistics[layer]), &request);
    }
    if (parts_.delegates.gradient_rank[layer] != rank) continue;
    client::Gradient gradient;
    gradient.values = CopyOf(gradients[layer].data, gradients[layer].size());
    gradient.item.set_layer(layer);
    gradient.item.set_rows(gradients[layer].rows);
    gradient.item.set_cols(gradients[layer].cols);
    gradient.item.set_checksum(ChecksumOf(gradient.values));
    request.gradients.push_back(std::move(gradient));
  }
  return request;
}

void JoinedSession::AddContributions(int layer, LayerStatistics statistics,
                                     client::StepRequest* request) const {
  const auto add = [&](v1::FactorKind kind, int64_t dim,
                       curvature::FactorSum<float>* sum) {
    client::Contribution contribution;
    contribution.item.set_layer(layer);
    contribution.item.set_kind(kind);
    contribution.item.set_body(statistics.body);
    contribution.item.set_dim(dim);
    contribution.item.set_loss_rows(sum->loss_rows);
    contribution.item.set_rows(sum->rows);
    if (statistics.body == v1::CONTRIBUTION_BODY_DATA) {
      contribution.values = MoveToTensor(&sum->packed);
      contribution.item.set_checksum(ChecksumOf(contribution.values));
    }
    request->contributions.push_back(std::move(contribution));
  };
  add(v1::FACTOR_KIND_INPUT, parts_.layers[layer].d_in, &statistics.input);
  add(v1::FACTOR_KIND_OUTPUT, parts_.layers[layer].d_out, &statistics.output);
}

void JoinedSession::Report(const std::vector<HeldAnswer>& held,
                           const StepDecision& decision,
                           StepResult* result) const {
  result->voided = decision.voided;
  for (size_t i = 0; i < held.size(); ++i) {
    LayerReport report;
    report.preconditioned = decision.preconditioned[i];
    if (report.preconditioned) {
      report.version = held[i].version;
      report.age = held[i].age;
      report.rung = held[i].rung;
    } else {
      ++result->fallbacks;
      report.message = held[i].message;
      report.reason = decision.voided ? v1::FALLBACK_REASON_VOID
                      : held[i].reason != v1::FALLBACK_REASON_UNSPECIFIED
                          ? held[i].reason
                          : v1::FALLBACK_REASON_DISAGREED;
    }
    result->layers.push_back(std::move(report));
  }
}

// One line when other layers fall back than at the last step, or for other
// reasons.
void JoinedSession::LogFallbacks(int64_t step, const StepResult& result) {
  std::vector<std::string> fallen;
  for (size_t i = 0; i < result.layers.size(); ++i) {
    if (result.layers[i].preconditioned) continue;
    fallen.push_back(
        absl::StrCat(parts_.layers[i].name, ":",
                     v1::FallbackReason_Name(result.layers[i].reason)));
  }
  const std::string now = absl::StrJoin(fallen, ",");
  if (now == fallen_) return;
  fallen_ = now;
  const std::string& job = parts_.options.job;
  if (fallen.empty()) {
    Log(LogLevel::kInfo, "every layer is preconditioned again",
        {{"job", job}, {"rank", parts_.options.rank}, {"step", step}});
    return;
  }
  Log(LogLevel::kWarning, "layers fall back",
      {{"job", job},
       {"rank", parts_.options.rank},
       {"step", step},
       {"epoch", result.epoch},
       {"layers", now}});
}

void JoinedSession::LogRefused(int64_t step,
                               const std::vector<std::string>& refused) {
  if (!curvature::IsFactorStep(intervals_, step)) return;
  const bool before = std::exchange(was_refused_, !refused.empty());
  if (before == was_refused_) return;
  if (!was_refused_) {
    Log(LogLevel::kInfo, "all factors are taken again",
        {{"job", parts_.options.job},
         {"rank", parts_.options.rank},
         {"step", step}});
    return;
  }
  Log(LogLevel::kWarning, "factors were not taken",
      {{"job", parts_.options.job},
       {"rank", parts_.options.rank},
       {"step", step},
       {"count", refused.size()},
       {"first", refused.front()}});
}

// Which ranks share this rank's node, and who does what for which layer.
void ChooseRoles(Parts* parts) {
  const v1::World& world = parts->client->joined().world();
  std::vector<std::string> nodes;
  for (const v1::RankInfo& rank : world.ranks()) {
    nodes.push_back(rank.node());
    if (rank.node() == world.ranks(parts->options.rank).node()) {
      parts->node_ranks.push_back(rank.rank());
    }
  }
  std::vector<placement::LayerDims> dims;
  for (const LayerShape& layer : parts->layers) {
    dims.push_back({layer.d_in, layer.d_out});
  }
  parts->delegates = placement::ChooseDelegates(
      nodes, dims, FactorSourceOf(parts->options.job_options));
}

absl::Status ConnectGroups(const CommunicatorFactory& groups, Parts* parts) {
  BoardRendezvous rendezvous(&parts->client->rendezvous());
  const absl::Duration budget =
      absl::Milliseconds(parts->options.job_options.step_budget_ms());
  GroupSpec spec;
  spec.timeout = std::max(absl::Seconds(30), 4 * budget);
  spec.name = "job";
  spec.rank = parts->options.rank;
  spec.size = parts->options.world_size;
  KRONSERVE_ASSIGN_OR_RETURN(parts->job_group, groups(spec, &rendezvous));
  const bool gathers = FactorSourceOf(parts->options.job_options) ==
                           placement::FactorSource::kAll &&
                       parts->node_ranks.size() > 1 && !parts->layers.empty();
  if (!gathers) return absl::OkStatus();
  const std::vector<int>& ranks = parts->node_ranks;
  spec.name = absl::StrCat("node-", parts->options.node);
  spec.size = static_cast<int>(ranks.size());
  spec.rank = static_cast<int>(
      std::lower_bound(ranks.begin(), ranks.end(), parts->options.rank) -
      ranks.begin());
  KRONSERVE_ASSIGN_OR_RETURN(parts->node_group, groups(spec, &rendezvous));
  return absl::OkStatus();
}

void LogJoined(const Parts& parts) {
  const v1::JoinJobResponse& joined = parts.client->joined();
  for (const std::string& warning : joined.warnings()) {
    Log(LogLevel::kWarning, warning, {{"job", parts.options.job}});
  }
  Log(LogLevel::kInfo, "joined",
      {{"job", parts.options.job},
       {"rank", parts.options.rank},
       {"world", joined.world().version()},
       {"ranks", joined.world().ranks_size()},
       {"layers", parts.layers.size()},
       {"start_step", joined.world().start_step()},
       {"epoch", joined.assignment().epoch()}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> JoinWithDependencies(
    const SessionOptions& options, const std::vector<LayerShape>& layers,
    const CommunicatorFactory& groups,
    const SessionDependencies& dependencies) {
  const v1::JoinJobRequest request = JoinRequest(options, layers);
  KRONSERVE_RETURN_IF_ERROR(ValidateJoin(options, request));
  Parts parts;
  parts.options = options;
  parts.layers = layers;
  parts.clock = dependencies.clock;
  KRONSERVE_ASSIGN_OR_RETURN(const linalg::Device device,
                             linalg::ResolveDevice(options.device));
  KRONSERVE_ASSIGN_OR_RETURN(parts.tools,
                             linalg::CreateLinearAlgebra<float>(device));
  KRONSERVE_ASSIGN_OR_RETURN(
      parts.client,
      client::Client::Join(request, options.join_timeout,
                           dependencies.connect(options.scheduler)));
  parts.options.rank = parts.client->rank();
  parts.options.world_size = parts.client->joined().world().ranks_size();
  ChooseRoles(&parts);
  const absl::Status connected = ConnectGroups(groups, &parts);
  if (absl::IsUnavailable(connected) || absl::IsDeadlineExceeded(connected)) {
    return absl::AbortedError(
        absl::StrCat("a rank was lost while those of world ",
                     parts.client->joined().world().version(), " of job '",
                     options.job, "' connected: ", connected.message()));
  }
  KRONSERVE_RETURN_IF_ERROR(connected);
  LogJoined(parts);
  return std::make_unique<JoinedSession>(std::move(parts));
}

absl::StatusOr<std::unique_ptr<Session>> Session::Join(
    const SessionOptions& options, const std::vector<LayerShape>& layers,
    const CommunicatorFactory& groups) {
  return JoinWithDependencies(options, layers, groups, SessionDependencies());
}

}  // namespace kronserve::worker
