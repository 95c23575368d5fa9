#include "tests/simulation/cluster_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/simulation/random.h"

namespace kronserve::simulation {
namespace {

constexpr absl::Duration kFirstFault = absl::Seconds(3);
constexpr absl::Duration kCalm = absl::Seconds(16);

std::vector<v1::LayerSpec> DrawLayers(Random* random) {
  std::vector<v1::LayerSpec> layers;
  const int64_t count = random->Between(2, kMostLayers);
  for (int64_t i = 0; i < count; ++i) {
    v1::LayerSpec& layer = layers.emplace_back();
    layer.set_name(absl::StrCat("l", i));
    layer.set_kind(v1::LAYER_KIND_LINEAR);
    layer.set_d_out(random->Between(1, 3));
    layer.set_d_in(random->Between(1, 3));
    layer.set_scale_a(1);
    layer.set_scale_g(random->Chance(0.5) ? 1 : 2);
  }
  return layers;
}

v1::JobOptions DrawOptions(Random* random) {
  v1::JobOptions options;
  const bool synchronous = random->Chance(0.4);
  options.set_factor_update_steps(random->Chance(0.5) ? 1
                                                      : random->Between(2, 4));
  options.set_inv_update_steps(random->Chance(0.5) ? 1 : random->Between(2, 5));
  const bool eigen = random->Chance(0.3);
  options.set_method(eigen ? v1::COMPUTE_METHOD_EIGEN
                           : v1::COMPUTE_METHOD_INVERSE);
  options.set_damping_form(eigen ? v1::DAMPING_FORM_EXACT
                                 : v1::DAMPING_FORM_FACTORED);
  options.set_factor_init(static_cast<v1::FactorInit>(random->Between(1, 3)));
  options.set_factor_source(random->Chance(0.7) ? v1::FACTOR_SOURCE_ALL
                                                : v1::FACTOR_SOURCE_ONE_RANK);
  options.set_refresh_schedule(random->Chance(0.5)
                                   ? v1::REFRESH_SCHEDULE_ALIGNED
                                   : v1::REFRESH_SCHEDULE_STAGGERED);
  options.set_max_staleness(synchronous ? 0 : random->Between(1, 6));
  options.set_round_policy(synchronous || random->Chance(0.3)
                               ? v1::ROUND_POLICY_WAIT
                               : v1::ROUND_POLICY_PARTIAL);
  options.set_min_round_share(0.5);
  options.set_step_budget_ms(2000);
  options.set_round_deadline_ms(random->Chance(0.5) ? 1000 : 300);
  options.set_max_open_rounds(static_cast<int32_t>(random->Between(1, 3)));
  options.set_fallback(static_cast<v1::FallbackKind>(random->Between(1, 3)));
  options.set_deterministic(false);
  return options;
}

NetworkWeather DrawWeather(Random* random) {
  NetworkWeather weather;
  if (random->Chance(0.3)) return weather;
  if (random->Chance(0.5)) weather.lost = 0.02 * random->Unit();
  if (random->Chance(0.5)) weather.reset = 0.03 * random->Unit();
  if (random->Chance(0.6)) weather.repeated = 0.1 * random->Unit();
  if (random->Chance(0.5)) weather.late = 0.05 * random->Unit();
  return weather;
}

FaultKind DrawKind(const ClusterPlan& plan, Random* random) {
  if (plan.only_losses) return static_cast<FaultKind>(random->Below(3));
  // Moves are what most can go wrong with.
  if (random->Chance(0.25)) {
    return random->Chance(0.7) ? FaultKind::kDrainServer : FaultKind::kPinLayer;
  }
  return static_cast<FaultKind>(random->Below(kFaultKinds));
}

Fault DrawFault(const ClusterPlan& plan, Random* random) {
  Fault fault;
  fault.kind = DrawKind(plan, random);
  fault.at = random->Between(kFirstFault, plan.faults_end - absl::Seconds(1));
  fault.lasts = random->Between(absl::Milliseconds(50), absl::Seconds(12));
  // Often a little: a restart or a hiccup within the budget.
  if (random->Chance(0.3)) fault.lasts = fault.lasts / 10;
  const bool of_rank = fault.kind == FaultKind::kKillRank ||
                       fault.kind == FaultKind::kFreezeRank;
  fault.target =
      static_cast<int>(random->Below(of_rank ? plan.ranks() : plan.servers));
  fault.layer =
      static_cast<int>(random->Below(static_cast<int64_t>(plan.layers.size())));
  fault.direction = static_cast<int>(random->Below(3));
  fault.peer = static_cast<int>(random->Between(-1, plan.ranks() - 1));
  return fault;
}

void DrawFaults(Random* random, ClusterPlan* plan) {
  const int64_t count = random->Between(1, plan->only_losses ? 3 : 8);
  for (int64_t i = 0; i < count; ++i) {
    plan->faults.push_back(DrawFault(*plan, random));
  }
  std::sort(plan->faults.begin(), plan->faults.end(),
            [](const Fault& a, const Fault& b) { return a.at < b.at; });
}

}  // namespace

const char* NameOf(FaultKind kind) {
  static constexpr const char* kNames[kFaultKinds] = {
      "kill server",  "lose server",    "freeze server",    "cut server",
      "cut link",     "kill scheduler", "freeze scheduler", "cut scheduler",
      "kill rank",    "freeze rank",    "break group",      "disk full",
      "drain server", "pin layer"};
  return kNames[static_cast<int>(kind)];
}

ClusterPlan MakeClusterPlan(uint64_t seed) {
  Random random(Random::Mix(seed));
  ClusterPlan plan;
  plan.seed = seed;
  plan.only_losses = random.Chance(0.2);
  plan.servers = static_cast<int>(random.Between(1, 4));
  const int64_t ranks = random.Between(1, 4);
  const bool shared_nodes = random.Chance(0.3);
  for (int64_t i = 0; i < ranks; ++i) {
    plan.nodes.push_back(absl::StrCat("node", shared_nodes ? i / 2 : i));
  }
  plan.layers = DrawLayers(&random);
  plan.options = DrawOptions(&random);
  if (!plan.only_losses) {
    plan.weather = DrawWeather(&random);
    plan.void_step = random.Chance(0.3) ? 0.02 : 0;
    plan.empty = random.Chance(0.3) ? 0.05 : 0;
    plan.damaged = random.Chance(0.3) ? 0.03 : 0;
  }
  plan.checkpoints = random.Chance(0.6);
  plan.checkpoint_interval =
      random.Between(absl::Milliseconds(300), absl::Seconds(4));
  plan.fastest_step = absl::Milliseconds(20);
  plan.slowest_step = absl::Milliseconds(random.Chance(0.5) ? 500 : 150);
  plan.longest_task = absl::Milliseconds(random.Between(1, 20));
  plan.faults_end = random.Between(absl::Seconds(8), absl::Seconds(20));
  plan.end = plan.faults_end + kCalm;
  for (int i = 0; i < plan.servers; ++i) {
    const bool late = i > 0 && !plan.only_losses && random.Chance(0.2);
    plan.starts.push_back(
        late ? random.Between(absl::Seconds(1), plan.faults_end)
             : absl::ZeroDuration());
  }
  DrawFaults(&random, &plan);
  return plan;
}

std::vector<std::string> Describe(const ClusterPlan& plan) {
  std::vector<std::string> lines;
  lines.push_back(absl::StrCat(
      "seed ", plan.seed, ": ", plan.servers, " servers, ", plan.ranks(),
      " ranks on ", absl::StrJoin(plan.nodes, " "), ", ", plan.layers.size(),
      " layers", plan.only_losses ? ", servers are lost and no more" : ""));
  for (const v1::LayerSpec& layer : plan.layers) {
    lines.push_back(absl::StrCat("layer ", layer.name(), " [", layer.d_out(),
                                 ", ", layer.d_in(), "]"));
  }
  lines.push_back(plan.options.ShortDebugString());
  lines.push_back(absl::StrCat(
      "network: lost ", plan.weather.lost, ", reset ", plan.weather.reset,
      ", repeated ", plan.weather.repeated, ", late ", plan.weather.late,
      plan.checkpoints
          ? absl::StrCat("; checkpoints every ",
                         absl::FormatDuration(plan.checkpoint_interval))
          : "; no checkpoints"));
  for (int i = 0; i < plan.servers; ++i) {
    if (plan.starts[i] == absl::ZeroDuration()) continue;
    lines.push_back(absl::StrCat("server ", i, " joins at ",
                                 absl::FormatDuration(plan.starts[i])));
  }
  for (const Fault& fault : plan.faults) {
    lines.push_back(absl::StrCat(
        "at ", absl::FormatDuration(fault.at), " for ",
        absl::FormatDuration(fault.lasts), ": ", NameOf(fault.kind), " ",
        fault.target, ", direction ", fault.direction, ", peer ", fault.peer));
  }
  lines.push_back(absl::StrCat("all is repaired at ",
                               absl::FormatDuration(plan.faults_end), ", end ",
                               absl::FormatDuration(plan.end)));
  return lines;
}

}  // namespace kronserve::simulation
