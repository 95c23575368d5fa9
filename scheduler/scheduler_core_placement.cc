// Where layers are and where they go: places, moves and epochs.

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "scheduler/job_report.h"
#include "scheduler/scheduler_core.h"

namespace kronserve::scheduler {
namespace {

// What we know of the newest step may be one heartbeat old, a rank hears of a
// new epoch with its next one, and a heartbeat may be late.
constexpr int kHeartbeatsToHear = 3;

// The servers that `assignment` names, each once, by name.
std::set<std::string> NamesIn(const v1::Assignment& assignment) {
  std::set<std::string> names;
  for (const v1::LayerOwner& owner : assignment.owners()) {
    names.insert(owner.server());
    names.insert(owner.source());
  }
  names.erase("");
  return names;
}

void GoBackToSource(LayerPlace* place) {
  place->owner = std::exchange(place->source, "");
  place->issued = false;
}

}  // namespace

void SchedulerCore::Replan(Job* job, absl::Time now) {
  if (job->finished || !job->has_world()) {
    job->needs_plan = job->needs_moves = job->needs_balance = false;
    return;
  }
  // Both end in another call: a new world plans anew, an awaited server
  // registers or dies.
  if (!job->roster.formed() || !MayPlace()) return;
  if (std::exchange(job->needs_plan, false)) PlaceLost(job);
  if (MayMove(*job, now)) PlaceMoves(job, now);
  const bool changed =
      std::any_of(job->layers.begin(), job->layers.end(),
                  [](const LayerPlace& place) { return !place.issued; });
  if (!changed && !job->needs_reissue) return;
  Issue(job, std::exchange(job->needs_reissue, false),
        {NextStep(*job), MoveStep(*job)});
}

void SchedulerCore::PlaceLost(Job* job) {
  if (job->num_ownerless() == 0) return;
  const absl::StatusOr<std::vector<std::string>> owners =
      PlanOwners(*job, job->config.world(), /*partial=*/true, membership_,
                 UseOfAll(jobs_, membership_, job));
  if (!owners.ok()) {
    Note(LogLevel::kError, absl::StrCat("job '", job->name, "' is not placed: ",
                                        owners.status().ToString()));
    return;
  }
  for (size_t i = 0; i < owners->size(); ++i) {
    LayerPlace& place = job->layers[i];
    if (!place.owner.empty() || (*owners)[i].empty()) continue;
    place.owner = (*owners)[i];
    place.issued = false;
  }
}

bool SchedulerCore::MayMove(const Job& job, absl::Time now) const {
  if (job.finished || !job.roster.formed() || !job.was_ready) return false;
  // One thing after the other: what was decided is stored and known first,
  // also to a server that comes back with layers it has lost meanwhile: it
  // must not take them for those that move to it.
  if (!job.durable || job.needs_reissue) return false;
  if (!job.configures.settled()) return false;
  if (!MayPlace()) return false;
  // A move that began in the past would take a layer away under open rounds.
  if (job.roster.AnyAlive(now) && !job.pace.known()) return false;
  // A layer that moves before the cut is written by its new owner.
  const v1::StoredCheckpoint* checkpoint = job.WritingCheckpoint();
  return checkpoint == nullptr || MoveStep(job) <= checkpoint->step();
}

bool SchedulerCore::MayBalance(const Job& job, absl::Time now) const {
  return MayMove(job, now) && !job.any_moving() && !membership_.AnySuspect(now);
}

void SchedulerCore::PlaceMoves(Job* job, absl::Time now) {
  const bool balance = job->needs_balance && MayBalance(*job, now);
  const absl::StatusOr<PlannedMoves> planned = PlanMoves(
      *job, balance, membership_, UseOfAll(jobs_, membership_, job), now);
  job->needs_moves = false;
  if (balance) job->needs_balance = false;
  if (!planned.ok()) {
    Note(LogLevel::kError, absl::StrCat("moves of job '", job->name,
                                        "': ", planned.status().ToString()));
    return;
  }
  job->placement_note = planned->note;
  for (size_t i = 0; i < job->layers.size(); ++i) {
    LayerPlace& place = job->layers[i];
    if (place.owner == planned->owners[i] || place.owner.empty()) continue;
    place.source = std::exchange(place.owner, planned->owners[i]);
    place.source_gone = absl::InfiniteFuture();
    place.issued = false;
  }
}

int64_t SchedulerCore::NextStep(const Job& job) const {
  const int64_t start_step = job.config.world().start_step();
  if (!job.was_ready) return start_step;
  return std::max(job.step, start_step - 1) + kStepMargin;
}

int64_t SchedulerCore::MoveStep(const Job& job) const {
  return NextStep(job) +
         job.pace.StepsIn(kHeartbeatsToHear * options_.lease.heartbeat);
}

// Makes the next epoch. Layers that have a new place, or `all`, are answered by
// their owners from `steps` on.
void SchedulerCore::Issue(Job* job, bool all, const Steps& steps) {
  const v1::Assignment old = job->config.assignment();
  v1::Assignment assignment;
  assignment.set_job(job->name);
  assignment.set_epoch(std::max(job->epoch(), high_water_.epoch) + 1);
  assignment.set_term(term_);
  int placed = 0;
  int moving = 0;
  for (size_t i = 0; i < job->layers.size(); ++i) {
    LayerPlace& place = job->layers[i];
    const int layer = static_cast<int>(i);
    v1::LayerOwner* owner = assignment.add_owners();
    owner->set_layer(layer);
    owner->set_server(place.owner);
    owner->set_source(place.source);
    if (place.issued && !all) {
      owner->set_from_step(old.owners(layer).from_step());
    } else {
      owner->set_from_step(place.moving() ? steps.moved : steps.placed);
    }
    if (std::exchange(place.issued, true)) continue;
    place.epoch = assignment.epoch();
    ++(place.moving() ? moving : placed);
  }
  std::vector<v1::ServerAddress> targets;
  for (const std::string& name : NamesIn(assignment)) {
    targets.push_back(membership_.Find(name)->address);
    *assignment.add_servers() = targets.back();
  }
  job->configures.SetTargets(targets, assignment.epoch());
  Note(LogLevel::kInfo,
       absl::StrCat("job '", job->name, "' epoch ", assignment.epoch(), ": ",
                    placed, " layers placed from step ", steps.placed, ", ",
                    moving, " to move at step ", steps.moved, ", ",
                    job->num_ownerless(), " without an owner"));
  *job->config.mutable_assignment() = std::move(assignment);
  Save(job);
}

// `server` says what it still waits for: whatever else was on its way to it
// has arrived.
void SchedulerCore::EndMoves(const std::string& server, const v1::JobHeld& held,
                             Job* job) {
  if (held.world_version() != job->world_version()) return;
  const std::set<int> awaited(held.awaited().begin(), held.awaited().end());
  int arrived = 0;
  v1::Assignment* assignment = job->config.mutable_assignment();
  for (size_t i = 0; i < job->layers.size(); ++i) {
    LayerPlace& place = job->layers[i];
    if (!place.moving() || place.owner != server || !place.issued) continue;
    const int layer = static_cast<int>(i);
    if (held.epoch() < place.epoch || awaited.count(layer) > 0) continue;
    place.source.clear();
    assignment->mutable_owners(layer)->clear_source();
    ++arrived;
  }
  if (arrived == 0) return;
  const std::set<std::string> names = NamesIn(*assignment);
  const v1::Assignment old = *assignment;
  assignment->clear_servers();
  for (const v1::ServerAddress& known : old.servers()) {
    if (names.count(known.name()) > 0) {
      *assignment->add_servers() = known;
    } else {
      job->configures.Release(known.name());
    }
  }
  Note(LogLevel::kInfo,
       absl::StrCat(arrived, " layers of job '", job->name,
                    "' have arrived at server '", server, "'"));
  job->needs_moves = true;
  Save(job);
}

// `server` says what is still to leave it. What is not, and has not arrived
// either, it does not have: it lost it with a world that began anew, say. The
// receiver's own word may be a little behind, so twice is asked for.
void SchedulerCore::EndVainMoves(const std::string& server,
                                 const v1::JobHeld& held, absl::Time now,
                                 Job* job) {
  if (held.world_version() != job->world_version()) return;
  const std::set<int> leaving(held.leaving().begin(), held.leaving().end());
  for (size_t i = 0; i < job->layers.size(); ++i) {
    LayerPlace& place = job->layers[i];
    if (place.source != server || !place.issued) continue;
    if (held.epoch() < place.epoch || leaving.count(static_cast<int>(i)) > 0) {
      place.source_gone = absl::InfiniteFuture();
      continue;
    }
    place.source_gone = std::min(place.source_gone, now);
    if (now - place.source_gone <
        kHeartbeatsToHear * options_.lease.heartbeat) {
      continue;
    }
    Note(LogLevel::kWarning,
         absl::StrCat("server '", server, "' does not have layer ", i,
                      " of job '", job->name, "': '", place.owner,
                      "' begins without it"));
    place.source.clear();
    place.source_gone = absl::InfiniteFuture();
    place.issued = false;
    job->needs_moves = true;
  }
}

void SchedulerCore::Refused(Job* job, const Pending& pending,
                            const absl::Status& status) {
  const std::string& server = pending.server.name();
  if (!job->was_ready) {
    FailWorld(job,
              absl::Status(status.code(),
                           absl::StrCat("server '", server, "' refused job '",
                                        job->name, "': ", status.message())));
    return;
  }
  // It keeps what it has confirmed; what it would have got goes elsewhere.
  job->refusing.insert(server);
  for (LayerPlace& place : job->layers) {
    if (place.owner != server) continue;
    if (place.epoch <= job->configures.Confirmed(server)) continue;
    if (place.moving()) {
      GoBackToSource(&place);
    } else {
      place.owner.clear();
      place.issued = false;
    }
    job->needs_plan = job->needs_moves = true;
  }
}

absl::StatusOr<std::vector<int>> SchedulerCore::FindLayers(
    const Job& job, const v1::PinLayersRequest& request) const {
  std::map<std::string, int> index;
  std::vector<int> layers;
  for (int i = 0; i < job.config.layers_size(); ++i) {
    index[job.config.layers(i).name()] = i;
    if (request.layers().empty()) layers.push_back(i);
  }
  std::vector<std::string> unknown;
  for (const std::string& name : request.layers()) {
    const auto found = index.find(name);
    if (found != index.end()) {
      layers.push_back(found->second);
    } else {
      unknown.push_back(absl::StrCat("layer '", name.substr(0, 64), "'"));
    }
  }
  const ServerMember* server = membership_.Find(request.server());
  if (!request.server().empty() && (server == nullptr || !server->usable())) {
    unknown.push_back(
        absl::StrCat("living server '", request.server().substr(0, 64), "'"));
  }
  if (unknown.empty()) return layers;
  return absl::NotFoundError(absl::StrCat("job '", job.name, "': there is no ",
                                          absl::StrJoin(unknown, ", no ")));
}

absl::StatusOr<v1::PinLayersResponse> SchedulerCore::PinLayers(
    const v1::PinLayersRequest& request, absl::Time now) {
  Job* job = FindJob(request.job());
  if (job == nullptr || job->finished || !job->has_world()) {
    return UnknownJob(request.job());
  }
  KRONSERVE_ASSIGN_OR_RETURN(const std::vector<int> layers,
                             FindLayers(*job, request));
  const std::string& name = request.server();
  v1::PinLayersResponse response;
  if (name.empty()) {
    for (const int layer : layers) job->wishes.mutable_pins()->erase(layer);
  } else {
    if (membership_.draining(name)) {
      return absl::FailedPreconditionError(
          absl::StrCat("server '", name, "' is being drained"));
    }
    KRONSERVE_RETURN_IF_ERROR(CheckRoom(*job, layers, *membership_.Find(name),
                                        UseOfAll(jobs_, membership_, job)));
    for (const int layer : layers) {
      (*job->wishes.mutable_pins())[layer] = name;
      const bool away = job->layers[layer].owner != name;
      response.set_layers_moving(response.layers_moving() + (away ? 1 : 0));
    }
  }
  job->needs_moves = true;
  job->needs_balance |= name.empty();
  Save(job);
  TickJob(job, now);
  return response;
}

}  // namespace kronserve::scheduler
