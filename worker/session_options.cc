#include "worker/session_options.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/incarnation.h"
#include "placement/job_validation.h"

namespace kronserve::worker {
namespace {

absl::Status Faults(const std::vector<std::string>& faults) {
  if (faults.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(faults, "; "));
}

}  // namespace

v1::JobOptions DefaultJobOptions() {
  v1::JobOptions options;
  options.set_factor_update_steps(5);
  options.set_inv_update_steps(10);
  options.set_method(v1::COMPUTE_METHOD_INVERSE);
  options.set_damping_form(v1::DAMPING_FORM_FACTORED);
  options.set_factor_init(v1::FACTOR_INIT_WARM);
  options.set_factor_source(v1::FACTOR_SOURCE_ALL);
  options.set_refresh_schedule(v1::REFRESH_SCHEDULE_STAGGERED);
  options.set_max_staleness(10);
  options.set_round_policy(v1::ROUND_POLICY_PARTIAL);
  options.set_min_round_share(0.5);
  options.set_step_budget_ms(2000);
  options.set_round_deadline_ms(500);
  options.set_max_open_rounds(2);
  options.set_fallback(v1::FALLBACK_KIND_MATCHED);
  options.set_deterministic(false);
  return options;
}

v1::JobOptions SynchronousJobOptions() {
  v1::JobOptions options = DefaultJobOptions();
  options.set_refresh_schedule(v1::REFRESH_SCHEDULE_ALIGNED);
  options.set_max_staleness(0);
  options.set_round_policy(v1::ROUND_POLICY_WAIT);
  options.set_step_budget_ms(60000);
  options.set_round_deadline_ms(30000);
  return options;
}

v1::JoinJobRequest JoinRequest(
    const SessionOptions& options,
    const std::vector<curvature::LayerShape>& layers) {
  v1::JoinJobRequest request;
  request.set_job(options.job);
  request.set_run_id(options.run_id);
  request.set_restart_count(options.restart_count);
  request.set_rank(options.rank);
  request.set_world_size(options.world_size);
  request.set_node(options.node);
  request.set_incarnation(options.incarnation != 0 ? options.incarnation
                                                   : DrawIncarnation());
  request.set_next_step(options.next_step);
  request.set_min_ranks(options.min_ranks);
  request.set_fresh(options.fresh);
  request.set_restore_checkpoint(options.restore_checkpoint);
  *request.mutable_options() = options.job_options;
  for (const curvature::LayerShape& shape : layers) {
    v1::LayerSpec* layer = request.add_layers();
    layer->set_name(shape.name);
    layer->set_kind(shape.kind == curvature::LayerKind::kConv2d
                        ? v1::LAYER_KIND_CONV2D
                        : v1::LAYER_KIND_LINEAR);
    layer->set_d_out(shape.d_out);
    layer->set_d_in(shape.d_in);
    layer->set_has_bias(shape.has_bias);
    layer->set_scale_a(1);
    layer->set_scale_g(1);
  }
  return request;
}

absl::Status ValidateJoin(const SessionOptions& options,
                          const v1::JoinJobRequest& request) {
  std::vector<std::string> faults;
  const auto require = [&](bool fine, const std::string& fault) {
    if (!fine) faults.push_back(fault);
  };
  require(options.scheduler.find(':') != std::string::npos,
          absl::StrCat("scheduler '", options.scheduler, "' is not host:port"));
  require(!options.job.empty(), "the job has no name");
  require(!options.run_id.empty(), "run_id is empty");
  require(!options.node.empty(), "node is empty");
  require(
      options.restart_count >= 0,
      absl::StrCat("restart_count is ", options.restart_count, ", at least 0"));
  require(options.world_size >= 1,
          absl::StrCat("world_size is ", options.world_size, ", at least 1"));
  require(options.rank >= 0 && options.rank < options.world_size,
          absl::StrCat("rank is ", options.rank, ", from 0 to world_size - 1 (",
                       options.world_size - 1, ")"));
  require(options.min_ranks >= 0 && options.min_ranks <= options.world_size,
          absl::StrCat("min_ranks is ", options.min_ranks,
                       ", from 0 to world_size (", options.world_size, ")"));
  require(options.next_step >= 0,
          absl::StrCat("next_step is ", options.next_step, ", at least 0"));
  require(options.join_timeout > absl::ZeroDuration(),
          "join_timeout is not above zero");
  const absl::Status job =
      placement::ValidateJob(request.layers(), request.options());
  require(job.ok(), std::string(job.message()));
  return Faults(faults);
}

absl::Status ValidateStep(
    const StepSettings& settings,
    const std::vector<curvature::LayerShape>& layers,
    const std::vector<linalg::MatrixView<float>>& gradients) {
  std::vector<std::string> faults;
  const auto require = [&](bool fine, const std::string& fault) {
    if (!fine) faults.push_back(fault);
  };
  require(std::isfinite(settings.lr),
          absl::StrCat("lr is ", settings.lr, ", not finite"));
  require(!settings.kl_clip.has_value() ||
              (std::isfinite(*settings.kl_clip) && *settings.kl_clip > 0),
          absl::StrCat("kl_clip is ", settings.kl_clip.value_or(0),
                       ", must be above 0 or absent"));
  require(std::isfinite(settings.damping) && settings.damping >= 0,
          absl::StrCat("damping is ", settings.damping,
                       ", must be finite and at least 0"));
  require(settings.factor_decay >= 0 && settings.factor_decay < 1,
          absl::StrCat("factor_decay is ", settings.factor_decay,
                       ", must be in [0, 1)"));
  require(gradients.size() == layers.size(),
          absl::StrCat(gradients.size(), " gradients for ", layers.size(),
                       " layers"));
  for (size_t i = 0; i < std::min(gradients.size(), layers.size()); ++i) {
    const auto& gradient = gradients[i];
    require(gradient.data != nullptr && gradient.rows == layers[i].d_out &&
                gradient.cols == layers[i].d_in,
            absl::StrCat("layer '", layers[i].name, "': gradient is [",
                         gradient.rows, ", ", gradient.cols, "], registered [",
                         layers[i].d_out, ", ", layers[i].d_in, "]"));
  }
  return Faults(faults);
}

curvature::RefreshIntervals IntervalsOf(const v1::JobOptions& options) {
  curvature::RefreshIntervals intervals;
  intervals.factor_update_steps = options.factor_update_steps();
  intervals.inv_update_steps = options.inv_update_steps();
  intervals.schedule =
      options.refresh_schedule() == v1::REFRESH_SCHEDULE_ALIGNED
          ? curvature::RefreshSchedule::kAligned
          : curvature::RefreshSchedule::kStaggered;
  return intervals;
}

curvature::Fallback FallbackOf(const v1::JobOptions& options) {
  switch (options.fallback()) {
    case v1::FALLBACK_KIND_PLAIN:
      return curvature::Fallback::kPlain;
    case v1::FALLBACK_KIND_SKIP:
      return curvature::Fallback::kSkip;
    default:
      return curvature::Fallback::kMatched;
  }
}

placement::FactorSource FactorSourceOf(const v1::JobOptions& options) {
  return options.factor_source() == v1::FACTOR_SOURCE_ONE_RANK
             ? placement::FactorSource::kOneRank
             : placement::FactorSource::kAll;
}

}  // namespace kronserve::worker
