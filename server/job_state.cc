#include "server/job_state.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "placement/job_validation.h"

namespace kronserve::server {
namespace {

// Ends of steps that are kept without an open round: pushes of the last steps
// may still be under way.
int StepsToKeep(const v1::JobOptions& options) {
  const int64_t keep =
      (int64_t{options.max_open_rounds()} + 2) * options.factor_update_steps();
  return static_cast<int>(std::min<int64_t>(keep, StepLedger::kMostSteps / 2));
}

}  // namespace

JobState::JobState(v1::JobConfig config, std::string server,
                   uint64_t* next_instance)
    : config_(std::move(config)),
      server_(std::move(server)),
      next_instance_(next_instance),
      plan_(MakeJobPlan(config_)),
      ledger_(config_.world().ranks_size()) {
  for (int index : OwnedLayers(config_, server_)) AddLayer(index);
}

void JobState::AddLayer(int index) {
  const int64_t from_step = config_.assignment().owners(index).from_step();
  const int64_t closed_through =
      std::max(from_step, config_.world().start_step()) - 1;
  OwnedLayer layer{index,
                   (*next_instance_)++,
                   from_step,
                   closed_through,
                   LayerState(plan_.layers[index], plan_.contributors[index],
                              closed_through),
                   {}};
  layers_.emplace(index, std::move(layer));
}

OwnedLayer* JobState::FindLayer(int index) {
  const auto it = layers_.find(index);
  return it == layers_.end() ? nullptr : &it->second;
}

bool JobState::IsReplacedBy(const v1::JobConfig& config) const {
  return config.world().run_id() != config_.world().run_id() ||
         !placement::DescribeDifference(config.layers(), config.options(),
                                        config_.layers(), config_.options())
              .empty();
}

JobState::Change JobState::Adopt(v1::JobConfig config) {
  Change change;
  const bool new_world = config.world().version() != world_version();
  config_ = std::move(config);
  plan_ = MakeJobPlan(config_);
  const std::vector<int> owned = OwnedLayers(config_, server_);
  for (auto it = layers_.begin(); it != layers_.end();) {
    if (std::binary_search(owned.begin(), owned.end(), it->first)) {
      ++it;
      continue;
    }
    change.lost.push_back(std::move(it->second));
    it = layers_.erase(it);
  }
  if (new_world) {
    const int64_t start_step = config_.world().start_step();
    ledger_ = StepLedger(config_.world().ranks_size());
    for (auto& [index, layer] : layers_) {
      auto dropped =
          layer.state.StartWorld(plan_.contributors[index], start_step);
      std::move(dropped.begin(), dropped.end(),
                std::back_inserter(change.dropped));
      change.unanswered.insert(change.unanswered.end(), layer.waiting.begin(),
                               layer.waiting.end());
      layer.waiting.clear();
      layer.newest_step = start_step - 1;
      layer.from_step = std::min(layer.from_step, start_step);
    }
  }
  for (int index : owned) {
    if (layers_.count(index) == 0) AddLayer(index);
  }
  return change;
}

absl::Status JobState::AbortedWithAssignment(const std::string& message) const {
  absl::Status status = absl::AbortedError(message);
  status.SetPayload(kAssignmentPayload,
                    absl::Cord(config_.assignment().SerializeAsString()));
  return status;
}

absl::Status JobState::CheckFences(const v1::CallHeader& call) const {
  if (call.world_version() < world_version()) {
    return AbortedWithAssignment(absl::StrCat(
        "job '", name(), "': the call is of world ", call.world_version(),
        ", the job is in world ", world_version(), "; join again"));
  }
  if (call.world_version() > world_version()) {
    return absl::UnavailableError(absl::StrCat(
        "job '", name(), "': the call is of world ", call.world_version(),
        ", this server knows world ", world_version(), "; retry"));
  }
  if (call.rank() < 0 || call.rank() >= config_.world().ranks_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("job '", name(), "': rank ", call.rank(),
                     " is not in its world of ", config_.world().ranks_size()));
  }
  const uint64_t expected = config_.world().ranks(call.rank()).incarnation();
  if (call.incarnation() != expected) {
    return AbortedWithAssignment(absl::StrCat(
        "job '", name(), "': rank ", call.rank(), " is incarnation ", expected,
        ", the call is of incarnation ", call.incarnation()));
  }
  return absl::OkStatus();
}

absl::Status JobState::CheckOwner(const v1::CallHeader& call, int layer) const {
  const auto it = layers_.find(layer);
  if (it != layers_.end() && call.step() >= it->second.from_step) {
    return absl::OkStatus();
  }
  const std::string what =
      absl::StrCat("job '", name(), "': layer ", layer, " ('",
                   config_.layers(layer).name(), "') at step ", call.step());
  if (call.epoch() > epoch()) {
    return absl::UnavailableError(
        absl::StrCat(what, ": the call is of epoch ", call.epoch(),
                     ", this server knows epoch ", epoch(), "; retry"));
  }
  return AbortedWithAssignment(absl::StrCat(
      what, " is owned by '", config_.assignment().owners(layer).server(),
      "' from step ", config_.assignment().owners(layer).from_step(),
      " in epoch ", epoch(), ", the call is of epoch ", call.epoch()));
}

void JobState::PruneLedger() {
  const int keep = StepsToKeep(config_.options());
  if (ledger_.size() <= keep) return;
  int64_t needed_from = std::numeric_limits<int64_t>::max();
  for (const auto& [index, layer] : layers_) {
    needed_from = std::min(
        needed_from, layer.state.rounds().oldest_open().value_or(needed_from));
  }
  ledger_.Prune(needed_from, keep);
}

}  // namespace kronserve::server
