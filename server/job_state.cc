#include "server/job_state.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/snapshot_check.h"
#include "curvature/refresh_policy.h"
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
    : config_(std::make_shared<const v1::JobConfig>(std::move(config))),
      server_(std::move(server)),
      next_instance_(next_instance),
      plan_(MakeJobPlan(*config_)),
      ledger_(config_->world().ranks_size()),
      begun_(config_->world().start_step()) {
  for (int index : OwnedLayers(*config_, server_)) AddLayer(index);
}

// A layer is awaited at first: from the server that has it, or (no source) from
// a checkpoint.
void JobState::AddLayer(int index) {
  const v1::LayerOwner& owner = config_->assignment().owners(index);
  const int64_t closed_through =
      std::max(owner.from_step(), config_->world().start_step()) - 1;
  HeldLayer layer(LayerState(plan_.layers[index], plan_.contributors[index],
                             closed_through));
  layer.index = index;
  layer.instance = (*next_instance_)++;
  layer.from_step = owner.from_step();
  layer.newest_step = closed_through;
  layer.phase = v1::LAYER_PHASE_AWAITED;
  layer.since_epoch = epoch();
  // A server that is named as the source but has started anew has nothing.
  if (owner.source() != server_) layer.source = owner.source();
  layers_.emplace(index, std::move(layer));
}

HeldLayer* JobState::FindLayer(int index) {
  const auto it = layers_.find(index);
  return it == layers_.end() ? nullptr : &it->second;
}

bool JobState::SeeBegun(int64_t step) {
  if (step <= begun_) return false;
  begun_ = step;
  return true;
}

void JobState::SeeStep(const v1::CallHeader& call) {
  newest_step_ = std::max(newest_step_.value_or(call.step()), call.step());
  if (call.epoch() <= epoch()) {
    routed_step_ = std::max(routed_step_, call.step());
  }
}

bool JobState::IsOver(const HeldLayer& layer, int64_t step) const {
  if (begun_ >= step) return true;
  // Other ranks may still have pushes of the last factor step under way.
  return layer.state.HasAnswered(step - 1) &&
         layer.state.rounds().closed_through() >=
             curvature::LastFactorStep(layer.state.rules().intervals, step - 1);
}

bool JobState::IsReplacedBy(const v1::JobConfig& config) const {
  return config.world().run_id() != config_->world().run_id() ||
         !placement::DescribeDifference(config.layers(), config.options(),
                                        config_->layers(), config_->options())
              .empty();
}

std::vector<int> JobState::HeldUnder(const v1::JobConfig& config) const {
  std::vector<int> held;
  for (const v1::LayerOwner& owner : config.assignment().owners()) {
    const auto it = layers_.find(owner.layer());
    const bool leaves = owner.source() == server_ && it != layers_.end() &&
                        (!it->second.is_awaited() || it->second.restoring);
    if (owner.server() == server_ || leaves) held.push_back(owner.layer());
  }
  return held;
}

// Whether a layer stays here under the new configuration, as what.
//
//   new_world  with it, what is awaited is awaited anew, what leaves does so
//              anew, and a world that starts from a job checkpoint keeps
//              nothing.
bool JobState::Keep(HeldLayer& layer, bool new_world) const {
  const v1::LayerOwner& owner = config_->assignment().owners(layer.index);
  const bool restart = !config_->restore_checkpoint().empty();
  if (new_world && (restart || layer.is_awaited())) return false;
  if (owner.server() == server_) {
    layer.target.clear();
    if (layer.is_awaited()) {
      return owner.source() == layer.source &&
             owner.from_step() == layer.from_step;
    }
    if (!layer.is_leaving()) return true;
    layer.phase = v1::LAYER_PHASE_OWNED;
    layer.since_epoch = epoch();
    layer.source.clear();
    layer.handover = {};
    return true;
  }
  if (owner.source() != server_) return false;
  // One that is still read from its checkpoint leaves when that is done.
  if (layer.is_awaited() && !layer.restoring) return false;
  if (!new_world && layer.target == owner.server() &&
      layer.placed_step == owner.from_step()) {
    return true;
  }
  if (!layer.is_awaited()) {
    layer.phase = v1::LAYER_PHASE_LEAVING;
    layer.since_epoch = epoch();
  }
  layer.placed_step = owner.from_step();
  // All ranks route a step by one assignment: one that began here ends here,
  // or what was staged of it would be lost.
  layer.until_step = std::max(owner.from_step(), routed_step_ + 1);
  layer.target = owner.server();
  layer.handover = {};
  return true;
}

void JobState::StartWorld(Change* change) {
  const int64_t start_step = config_->world().start_step();
  ledger_ = StepLedger(config_->world().ranks_size());
  begun_ = start_step;
  newest_step_.reset();
  cut_.reset();
  for (auto& [index, layer] : layers_) {
    auto dropped =
        layer.state.StartWorld(plan_.contributors[index], start_step);
    std::move(dropped.begin(), dropped.end(),
              std::back_inserter(change->dropped));
    change->unanswered.insert(change->unanswered.end(), layer.waiting.begin(),
                              layer.waiting.end());
    layer.waiting.clear();
    layer.newest_step = start_step - 1;
    layer.from_step = std::min(layer.from_step, start_step);
    layer.handover = {};  // What is on its way is of the old world.
  }
}

JobState::Change JobState::Adopt(v1::JobConfig config) {
  Change change;
  const bool new_world = config.world().version() != world_version();
  config_ = std::make_shared<const v1::JobConfig>(std::move(config));
  plan_ = MakeJobPlan(*config_);
  if (new_world) routed_step_ = -1;  // Its steps may come again elsewhere.
  for (auto it = layers_.begin(); it != layers_.end();) {
    if (Keep(it->second, new_world)) {
      ++it;
      continue;
    }
    recoveries_.erase(it->first);
    change.lost.push_back(std::move(it->second));
    it = layers_.erase(it);
  }
  if (new_world) StartWorld(&change);
  for (int index : OwnedLayers(*config_, server_)) {
    if (layers_.count(index) == 0) AddLayer(index);
  }
  return change;
}

std::optional<int64_t> JobState::CutOf(const HeldLayer& layer) const {
  if (!cut_.has_value() || layer.is_leaving()) return std::nullopt;
  const auto taken = cut_->taken.find(layer.index);
  const bool is_taken =
      taken != cut_->taken.end() && taken->second == layer.instance;
  if (is_taken || layer.state.IsPast(cut_->step)) return std::nullopt;
  return cut_->step;
}

LayerContents JobState::Contents(const HeldLayer& layer,
                                 int64_t through) const {
  LayerContents contents = layer.state.Contents(through);
  v1::LayerSnapshot& meta = contents.meta;
  *meta.mutable_layer() = config_->layers(layer.index);
  *meta.mutable_options() = checkpoint::StateOptions(config_->options());
  meta.set_job(name());
  meta.set_run_id(config_->world().run_id());
  meta.set_layer_index(layer.index);
  meta.set_world_version(world_version());
  meta.set_epoch(epoch());
  return contents;
}

const v1::ServerAddress* JobState::FindServer(const std::string& name) const {
  for (const v1::ServerAddress& server : config_->assignment().servers()) {
    if (server.name() == name) return &server;
  }
  return nullptr;
}

absl::Status JobState::AbortedWithAssignment(const std::string& message) const {
  absl::Status status = absl::AbortedError(message);
  status.SetPayload(kAssignmentPayload,
                    absl::Cord(config_->assignment().SerializeAsString()));
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
  if (call.rank() < 0 || call.rank() >= config_->world().ranks_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "job '", name(), "': rank ", call.rank(), " is not in its world of ",
        config_->world().ranks_size()));
  }
  const uint64_t expected = config_->world().ranks(call.rank()).incarnation();
  if (call.incarnation() != expected) {
    return AbortedWithAssignment(absl::StrCat(
        "job '", name(), "': rank ", call.rank(), " is incarnation ", expected,
        ", the call is of incarnation ", call.incarnation()));
  }
  return absl::OkStatus();
}

absl::Status JobState::CheckOwner(const v1::CallHeader& call, int layer) const {
  const auto it = layers_.find(layer);
  if (it != layers_.end() && call.step() >= it->second.from_step &&
      !(it->second.is_to_leave() && call.step() >= it->second.until_step)) {
    return absl::OkStatus();
  }
  const std::string what =
      absl::StrCat("job '", name(), "': layer ", layer, " ('",
                   config_->layers(layer).name(), "') at step ", call.step());
  if (call.epoch() > epoch()) {
    return absl::UnavailableError(
        absl::StrCat(what, ": the call is of epoch ", call.epoch(),
                     ", this server knows epoch ", epoch(), "; retry"));
  }
  return AbortedWithAssignment(absl::StrCat(
      what, " is owned by '", config_->assignment().owners(layer).server(),
      "' from step ", config_->assignment().owners(layer).from_step(),
      " in epoch ", epoch(), ", the call is of epoch ", call.epoch()));
}

void JobState::PruneLedger() {
  const int keep = StepsToKeep(config_->options());
  if (ledger_.size() <= keep) return;
  int64_t needed_from = std::numeric_limits<int64_t>::max();
  for (const auto& [index, layer] : layers_) {
    needed_from = std::min(
        needed_from, layer.state.rounds().oldest_open().value_or(needed_from));
  }
  ledger_.Prune(needed_from, keep);
}

}  // namespace kronserve::server
