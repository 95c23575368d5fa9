#include "scheduler/job_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "placement/cost_curve.h"
#include "placement/memory_model.h"
#include "placement/placement.h"
#include "scheduler/planner.h"

namespace kronserve::scheduler {
namespace {

// Largest predicted load of the job's layers over its lower bound on the
// usable servers; 1 without layers or servers.
double Imbalance(const Job& job, const Membership& membership) {
  std::vector<placement::CostCurve> curves;
  for (const auto& [name, member] : membership.members()) {
    if (member.usable()) curves.push_back(member.curve);
  }
  std::vector<placement::RefreshWork> works;
  for (const v1::LayerSpec& layer : job.config.layers()) {
    works.push_back(WorkOf(layer));
  }
  const double bound = placement::LowerBoundSeconds(works, curves);
  double largest = 0;
  for (const auto& [name, use] : UseOfJob(job, membership)) {
    largest = std::max(largest, use.seconds);
  }
  return bound > 0 && largest > 0 ? largest / bound : 1;
}

void AddPlaces(const Job& job, const Membership& membership,
               v1::JobStatus* status) {
  for (size_t i = 0; i < job.layers.size(); ++i) {
    const LayerPlace& place = job.layers[i];
    const ServerMember* owner = membership.Find(place.owner);
    const placement::RefreshWork work =
        WorkOf(job.config.layers(static_cast<int>(i)));
    status->add_refresh_seconds(
        owner == nullptr ? 0 : placement::RefreshSeconds(owner->curve, work));
    if (place.moving()) status->add_moving(static_cast<int>(i));
    if (place.recovery.epoch() > 0) *status->add_recoveries() = place.recovery;
  }
}

// Owners that were lost are no matter of balance: they come first.
std::string PlacementNote(const Job& job) {
  std::vector<std::string> lines;
  if (job.num_ownerless() > 0) {
    lines.push_back(absl::StrCat(job.num_ownerless(),
                                 " layers have no owner: no server that is to "
                                 "be used has room for them"));
  }
  if (!job.refusing.empty()) {
    lines.push_back(absl::StrCat("refused more layers: ",
                                 absl::StrJoin(job.refusing, ", ")));
  }
  if (!job.placement_note.empty()) lines.push_back(job.placement_note);
  return absl::StrJoin(lines, "; ");
}

}  // namespace

v1::JobStatus DescribeJob(const Job& job, const Membership& membership,
                          absl::Time now) {
  v1::JobStatus status;
  status.set_job(job.name);
  status.set_state(job.State(now));
  *status.mutable_world() = job.config.world();
  status.set_step(job.step);
  *status.mutable_assignment() = job.config.assignment();
  *status.mutable_layers() = job.config.layers();
  status.set_imbalance(Imbalance(job, membership));
  status.set_placement_note(PlacementNote(job));
  AddPlaces(job, membership, &status);
  for (const v1::StoredCheckpoint& checkpoint : job.wishes.checkpoints()) {
    if (checkpoint.state() != v1::STORED_CHECKPOINT_STATE_COMPLETE) continue;
    status.set_checkpoint(checkpoint.id());
    status.set_checkpoint_step(checkpoint.step());
  }
  return status;
}

std::vector<std::string> PlanLines(const v1::JobConfig& config) {
  std::vector<std::string> lines;
  const int num_nodes = NumNodes(config.world());
  const bool inverse = config.options().method() == v1::COMPUTE_METHOD_INVERSE;
  for (int i = 0; i < config.layers_size(); ++i) {
    const v1::LayerSpec& layer = config.layers(i);
    const std::string& owner = config.assignment().owners(i).server();
    const int64_t bytes = placement::PredictLayerBytes(
        placement::DescribeLayerMemory(layer, config.options(), num_nodes));
    lines.push_back(absl::StrCat(
        "layer '", layer.name(), "': ", inverse ? "inverse" : "eigen", ", [",
        layer.d_out(), ", ", layer.d_in(), "], ", bytes, " bytes ",
        owner.empty() ? "without an owner"
                      : absl::StrCat("on server '", owner, "'")));
  }
  return lines;
}

std::string DescribeRecovery(const std::string& layer,
                             const std::string& server,
                             const v1::LayerRecovery& recovery) {
  const int64_t first_lost = recovery.restored_through() + 1;
  // No step was trained before: there was nothing to lose.
  if (first_lost >= recovery.from_step()) return "";
  const std::string state =
      recovery.source() == v1::RECOVERY_SOURCE_BACKGROUND_CHECKPOINT
          ? "a background checkpoint"
      : recovery.source() == v1::RECOVERY_SOURCE_JOB_CHECKPOINT
          ? "a job checkpoint"
          : "no state";
  return absl::StrCat(
      "layer '", layer, "' began on server '", server, "' in epoch ",
      recovery.epoch(), " with ", state, ": what was accepted for steps ",
      first_lost, " to ", recovery.from_step() - 1, " is lost",
      recovery.message().empty() ? ""
                                 : absl::StrCat(" (", recovery.message(), ")"));
}

std::vector<std::string> Warnings(const v1::JobConfig& config) {
  std::vector<std::string> lines;
  if (config.layers().empty()) return lines;
  const v1::JobOptions& options = config.options();
  if (options.factor_init() == v1::FACTOR_INIT_IDENTITY) {
    lines.push_back(
        "factor_init identity: the identity fades as factor_decay^k; where "
        "the factors are small (trace / side below 0.01) it rules for "
        "hundreds of updates; warm forgets it");
  }
  if (options.factor_source() == v1::FACTOR_SOURCE_ONE_RANK) {
    int64_t largest = 0;
    for (const v1::LayerSpec& layer : config.layers()) {
      largest = std::max({largest, layer.d_in(), layer.d_out()});
    }
    lines.push_back(absl::StrCat(
        "factor_source one_rank: a factor averages about (1 + factor_decay) / "
        "(1 - factor_decay) batches of one rank; keep the rows in them above "
        "the largest side, ",
        largest, ", or damping alone holds the update together"));
  }
  if (options.inv_update_steps() % options.factor_update_steps() != 0) {
    lines.push_back(absl::StrCat(
        "inv_update_steps ", options.inv_update_steps(),
        " is not a multiple of factor_update_steps ",
        options.factor_update_steps(), ": some refreshes see no new factors"));
  }
  return lines;
}

}  // namespace kronserve::scheduler
