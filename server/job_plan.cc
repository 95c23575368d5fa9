#include "server/job_plan.h"

#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "placement/delegates.h"
#include "placement/job_validation.h"
#include "placement/memory_model.h"
#include "server/limits.h"

namespace kronserve::server {
namespace {

absl::Status CheckWorld(const v1::World& world) {
  if (world.version() < 1 || !IsStep(world.start_step()) ||
      world.ranks().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "world version ", world.version(), " with ", world.ranks_size(),
        " ranks starts at step ", world.start_step(),
        "; expected a version of at least 1, at least one rank "
        "and a step of 0 to ",
        kMaxStep));
  }
  for (int i = 0; i < world.ranks_size(); ++i) {
    const v1::RankInfo& rank = world.ranks(i);
    if (rank.rank() != i || rank.node().empty() || rank.incarnation() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank entry ", i, " is rank ", rank.rank(), " on node '",
                       rank.node(), "' with incarnation ", rank.incarnation(),
                       "; expected ranks in order, a node and an incarnation"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAssignment(const v1::JobConfig& config) {
  const v1::Assignment& assignment = config.assignment();
  if (assignment.epoch() < 1) {
    return absl::InvalidArgumentError("assignment epoch is 0");
  }
  if (assignment.owners_size() != config.layers_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("assignment has ", assignment.owners_size(),
                     " owners for ", config.layers_size(), " layers"));
  }
  for (int i = 0; i < assignment.owners_size(); ++i) {
    const v1::LayerOwner& owner = assignment.owners(i);
    if (owner.layer() != i || !IsStep(owner.from_step())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "owner entry ", i, " is of layer ", owner.layer(), " from step ",
          owner.from_step(), "; expected layers in order and a step of 0 to ",
          kMaxStep));
    }
  }
  return absl::OkStatus();
}

RoundRules MakeRoundRules(const v1::JobOptions& options) {
  RoundRules rules;
  rules.partial = options.round_policy() == v1::ROUND_POLICY_PARTIAL;
  rules.min_share = options.min_round_share();
  rules.deadline = absl::Milliseconds(options.round_deadline_ms());
  rules.max_open = options.max_open_rounds();
  return rules;
}

curvature::FactorInit MakeInit(v1::FactorInit init) {
  switch (init) {
    case v1::FACTOR_INIT_IDENTITY:
      return curvature::FactorInit::kIdentity;
    case v1::FACTOR_INIT_FIRST:
      return curvature::FactorInit::kFirst;
    default:
      return curvature::FactorInit::kWarm;
  }
}

LayerRules MakeLayerRules(const v1::LayerSpec& layer,
                          const v1::JobOptions& options) {
  LayerRules rules;
  rules.name = layer.name();
  rules.d_in = layer.d_in();
  rules.d_out = layer.d_out();
  rules.scale_a = layer.scale_a();
  rules.scale_g = layer.scale_g();
  rules.method = options.method() == v1::COMPUTE_METHOD_EIGEN
                     ? curvature::Method::kEigen
                     : curvature::Method::kInverse;
  rules.form = options.damping_form() == v1::DAMPING_FORM_EXACT
                   ? curvature::DampingForm::kExact
                   : curvature::DampingForm::kFactored;
  rules.init = MakeInit(options.factor_init());
  rules.intervals.factor_update_steps = options.factor_update_steps();
  rules.intervals.inv_update_steps = options.inv_update_steps();
  rules.intervals.schedule =
      options.refresh_schedule() == v1::REFRESH_SCHEDULE_ALIGNED
          ? curvature::RefreshSchedule::kAligned
          : curvature::RefreshSchedule::kStaggered;
  rules.max_staleness = options.max_staleness();
  rules.rounds = MakeRoundRules(options);
  return rules;
}

// The same weights on every server, or the phases would depend on who owns
// what.
double RefreshWeight(const v1::LayerSpec& layer) {
  return std::pow(static_cast<double>(layer.d_in()), 3) +
         std::pow(static_cast<double>(layer.d_out()), 3);
}

}  // namespace

JobPlan MakeJobPlan(const v1::JobConfig& config) {
  JobPlan plan;
  std::vector<placement::LayerDims> dims;
  std::vector<double> weights;
  for (const v1::LayerSpec& layer : config.layers()) {
    plan.layers.push_back(MakeLayerRules(layer, config.options()));
    dims.push_back({layer.d_in(), layer.d_out()});
    weights.push_back(RefreshWeight(layer));
  }
  if (plan.layers.empty()) return plan;
  const std::vector<int64_t> phases =
      curvature::RefreshPhases(plan.layers[0].intervals, weights);
  for (size_t i = 0; i < phases.size(); ++i) plan.layers[i].phase = phases[i];
  std::vector<std::string> nodes;
  for (const v1::RankInfo& rank : config.world().ranks()) {
    nodes.push_back(rank.node());
  }
  const auto source =
      config.options().factor_source() == v1::FACTOR_SOURCE_ONE_RANK
          ? placement::FactorSource::kOneRank
          : placement::FactorSource::kAll;
  plan.contributors =
      placement::ChooseDelegates(nodes, dims, source).contributors;
  return plan;
}

absl::Status CheckConfigure(const v1::ConfigureJobRequest& request) {
  const v1::JobConfig& config = request.config();
  if (request.term() < 1) return absl::InvalidArgumentError("term is 0");
  if (config.job().empty()) {
    return absl::InvalidArgumentError("job has no name");
  }
  KRONSERVE_RETURN_IF_ERROR(
      placement::ValidateJob(config.layers(), config.options()));
  KRONSERVE_RETURN_IF_ERROR(CheckWorld(config.world()));
  return CheckAssignment(config);
}

std::vector<int> OwnedLayers(const v1::JobConfig& config,
                             const std::string& server) {
  std::vector<int> owned;
  for (const v1::LayerOwner& owner : config.assignment().owners()) {
    if (owner.server() == server) owned.push_back(owner.layer());
  }
  return owned;
}

int64_t PredictBytes(const v1::JobConfig& config,
                     const std::vector<int>& layers, int64_t refresh_threads) {
  std::set<std::string> nodes;
  for (const v1::RankInfo& rank : config.world().ranks()) {
    nodes.insert(rank.node());
  }
  std::vector<placement::LayerMemory> memory;
  for (int layer : layers) {
    memory.push_back(
        placement::DescribeLayerMemory(config.layers(layer), config.options(),
                                       static_cast<int64_t>(nodes.size())));
  }
  return placement::PredictJobBytes(memory, refresh_threads,
                                    config.world().ranks_size());
}

}  // namespace kronserve::server
