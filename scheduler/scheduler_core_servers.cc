// Servers: who registers, what they say they hold, and who is lost.

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "scheduler/adoption.h"
#include "scheduler/job_report.h"
#include "scheduler/scheduler_core.h"

namespace kronserve::scheduler {

absl::StatusOr<v1::RegisterServerResponse> SchedulerCore::RegisterServer(
    const v1::RegisterServerRequest& request, absl::Time now) {
  Heard(now);
  KRONSERVE_ASSIGN_OR_RETURN(const Membership::Registration registration,
                             membership_.Register(request, now));
  const ServerMember& server = *membership_.Find(request.name());
  // Our own term it can know only from an earlier registration here: a first
  // one that shows it has met another scheduler.
  if (request.term_seen() > term_ ||
      (registration.is_new && request.term_seen() == term_)) {
    RaiseTermAbove(request.term_seen());
    store_lags_ = true;
  }
  if (registration.is_new) {
    Note(LogLevel::kInfo,
         absl::StrCat("server '", request.name(), "' registered at ",
                      request.address(), " with ", request.memory_bytes(),
                      " bytes, incarnation ", request.incarnation()));
  }
  if (registration.replaced) {
    LoseServer(request.name(), "was replaced by a new process");
  }
  NoteHeld(server, request.held(), now);
  WantOwners();
  if (registration.is_new || registration.joined) {
    WantMoves(registration.joined);
  }
  for (auto& [name, job] : jobs_) TickJob(&job, now);
  v1::RegisterServerResponse response;
  response.set_term(term_);
  response.set_heartbeat_ms(
      absl::ToInt64Milliseconds(options_.lease.heartbeat));
  response.set_lease_ms(absl::ToInt64Milliseconds(options_.lease.lease));
  return response;
}

absl::StatusOr<v1::ServerHeartbeatResponse> SchedulerCore::ServerHeartbeat(
    const v1::ServerHeartbeatRequest& request, absl::Time now) {
  Heard(now);
  const ServerMember* known = membership_.Find(request.name());
  const bool was_dead = known != nullptr && known->dead;
  const bool was_draining = membership_.draining(request.name());
  KRONSERVE_RETURN_IF_ERROR(membership_.Heartbeat(request, now));
  if (was_dead) {
    Note(LogLevel::kInfo,
         absl::StrCat("server '", request.name(), "' is heard of again"));
    WantOwners();
    WantMoves(/*balance=*/true);
  }
  if (membership_.draining(request.name()) != was_draining) {
    Note(LogLevel::kInfo,
         absl::StrCat("server '", request.name(), "' ",
                      was_draining ? "no longer wants" : "wants",
                      " to be drained"));
    if (was_draining) WantOwners();
    WantMoves(/*balance=*/was_draining);
  }
  NoteHeld(*membership_.Find(request.name()), request.held(), now);
  v1::ServerHeartbeatResponse response;
  FillHeartbeat(request.name(), now, &response);
  return response;
}

void SchedulerCore::FillHeartbeat(const std::string& server, absl::Time now,
                                  v1::ServerHeartbeatResponse* response) {
  response->set_term(term_);
  for (const auto& [name, job] : jobs_) {
    if (job.finished || !job.has_world() || !job.durable) continue;
    if (!job.Involves(server)) continue;
    v1::JobProgress* progress = response->add_jobs();
    progress->set_job(name);
    progress->set_world_version(job.world_version());
    progress->set_step(job.Progress(now));
  }
  for (const auto& [name, member] : membership_.members()) {
    if (name == server || !member.usable()) continue;
    *response->add_peers() = member.address;
  }
  response->set_drained(membership_.draining(server) &&
                        LayersLeftOn(server) == 0);
  membership_.SetMayLeave(server, response->drained());
}

int64_t SchedulerCore::LayersLeftOn(const std::string& server) const {
  int64_t left = 0;
  for (const auto& [name, job] : jobs_) {
    for (const LayerPlace& place : job.layers) {
      left += place.owner == server || place.source == server ? 1 : 0;
    }
  }
  return left;
}

absl::StatusOr<v1::DrainServerResponse> SchedulerCore::DrainServer(
    const v1::DrainServerRequest& request, absl::Time now) {
  const std::string& name = request.server();
  if (membership_.Find(name) == nullptr && !membership_.drained_by_hand(name)) {
    return absl::NotFoundError(
        absl::StrCat("there is no server '", name.substr(0, 64), "'"));
  }
  if (!request.undo()) {
    const std::vector<std::string> others = membership_.Placeable();
    if (std::count(others.begin(), others.end(), name) ==
        static_cast<int64_t>(others.size())) {
      return absl::FailedPreconditionError(
          absl::StrCat("server '", name,
                       "' cannot be drained: no other server is left that "
                       "lives and does not drain"));
    }
  }
  if (membership_.drained_by_hand(name) == request.undo()) {
    membership_.SetDrained(name, !request.undo());
    Note(LogLevel::kInfo,
         absl::StrCat("server '", name, "' ",
                      request.undo() ? "is used again" : "is drained by hand"));
    unsaved_drains_.insert(name);
    SaveServers();
    if (request.undo()) WantOwners();
    WantMoves(/*balance=*/request.undo());
    for (auto& [job_name, job] : jobs_) TickJob(&job, now);
  }
  v1::DrainServerResponse response;
  if (!request.undo()) response.set_layers_left(LayersLeftOn(name));
  return response;
}

void SchedulerCore::RaiseTermAbove(uint64_t term_seen) {
  term_ = term_seen + 1;
  Note(LogLevel::kWarning,
       absl::StrCat("a member has seen term ", term_seen,
                    " of another scheduler; this one goes on with term ",
                    term_));
  SaveServers();
}

void SchedulerCore::NoteHeld(
    const ServerMember& server,
    const google::protobuf::RepeatedPtrField<v1::JobHeld>& held,
    absl::Time now) {
  std::set<std::string> seen;
  for (const v1::JobHeld& job : held) {
    seen.insert(job.job());
    const absl::Status status = CheckHeld(job);
    if (status.ok()) {
      NoteHeldJob(server, job, now);
    } else {
      Note(LogLevel::kWarning, absl::StrCat("server '", server.address.name(),
                                            "': ", status.message()));
    }
  }
  for (auto& [name, job] : jobs_) {
    if (seen.count(name) > 0) continue;
    job.configures.Lags(server.address, 0, now, options_.lease.heartbeat);
  }
}

void SchedulerCore::NoteHeldJob(const ServerMember& server,
                                const v1::JobHeld& held, absl::Time now) {
  if (AdoptJob(server, held, now)) return;
  Job* job = FindJob(held.job());
  if (job == nullptr || !job->has_world()) {
    // Perhaps a job of an earlier life of ours: leave it, but stay above it.
    high_water_.Raise(held.world_version(), held.epoch());
    if (job != nullptr && held.world_version() <= job->given_up()) {
      job->drops.AddObserver(server.address);
    }
    return;
  }
  if (job->finished) {
    if (held.world_version() <= job->world_version()) {
      job->drops.AddObserver(server.address);
    } else {
      high_water_.Raise(held.world_version(), held.epoch());
    }
    return;
  }
  if (held.world_version() > job->world_version()) {
    // Our record is of an earlier life; the next world will be above it.
    high_water_.Raise(held.world_version(), held.epoch());
    return;
  }
  if (held.epoch() > job->epoch()) {
    high_water_.Raise(held.world_version(), held.epoch());
    job->needs_plan = job->needs_reissue = true;
    return;
  }
  if (held.world_version() == job->world_version() && held.has_newest_step()) {
    // After our restart servers may tell before the ranks do.
    NoteStep(held.newest_step(), now, job);
  }
  NoteRecoveries(server, held, job);
  EndMoves(server.address.name(), held, job);
  EndVainMoves(server.address.name(), held, now, job);
  if (held.epoch() == job->epoch() &&
      held.world_version() == job->world_version()) {
    job->configures.Confirm(server.address, held.epoch());
    return;
  }
  // One that owns nothing any more shall hear of it too, and give it up.
  job->configures.AddObserver(server.address);
  job->configures.Lags(server.address, held.epoch(), now,
                       options_.lease.heartbeat);
}

void SchedulerCore::NoteRecoveries(const ServerMember& server,
                                   const v1::JobHeld& held, Job* job) {
  for (const v1::LayerRecovery& recovery : held.recoveries()) {
    const int layer = recovery.layer();
    if (layer < 0 || layer >= static_cast<int>(job->layers.size())) continue;
    LayerPlace& place = job->layers[layer];
    // Servers repeat what they report.
    if (recovery.epoch() <= place.recovery.epoch()) continue;
    place.recovery = recovery;
    const std::string line = DescribeRecovery(job->config.layers(layer).name(),
                                              server.address.name(), recovery);
    if (line.empty()) continue;
    Note(LogLevel::kWarning, absl::StrCat("job '", job->name, "': ", line));
  }
}

void SchedulerCore::LoseServer(const std::string& name,
                               const std::string& why) {
  for (auto& [job_name, job] : jobs_) LoseServerOf(&job, name, why);
}

void SchedulerCore::LoseServerOf(Job* job, const std::string& name,
                                 const std::string& why) {
  if (job->drops.Has(name)) {
    job->drops.Remove(name);
    Save(job);
  }
  job->configures.Remove(name);
  job->refusing.erase(name);
  int64_t lost = 0;
  int64_t interrupted = 0;
  for (size_t i = 0; i < job->layers.size(); ++i) {
    LayerPlace& place = job->layers[i];
    if (place.owner != name && place.source != name) continue;
    if (place.owner == name && !job->checkpoint.Has(static_cast<int>(i))) {
      EndCheckpoint(job, absl::DataLossError(absl::StrCat(
                             "server '", name, "' ", why,
                             " and had not written all its layers")));
    }
    place.issued = false;
    if (place.source.empty()) {
      place.owner.clear();
      ++lost;
      continue;
    }
    // The source, if it still lives, has the state: it is the owner again.
    if (place.owner == name) place.owner = place.source;
    place.source.clear();
    ++interrupted;
  }
  if (lost + interrupted == 0) return;
  job->needs_plan = job->needs_moves = true;
  if (lost > 0) {
    Note(LogLevel::kWarning,
         absl::StrCat("server '", name, "' ", why, ": ", lost,
                      " layers of job '", job->name,
                      "' are placed anew and start from the newest checkpoint "
                      "or, without one, from the next factors"));
  }
  if (interrupted > 0) {
    Note(LogLevel::kWarning,
         absl::StrCat("server '", name, "' ", why, ": ", interrupted,
                      " layers of job '", job->name, "' were on their way"));
  }
}

void SchedulerCore::WantOwners() {
  for (auto& [name, job] : jobs_) {
    if (job.has_world() && !job.finished && job.num_ownerless() > 0) {
      job.needs_plan = true;
    }
  }
}

void SchedulerCore::WantMoves(bool balance) {
  for (auto& [name, job] : jobs_) {
    job.needs_moves = true;
    job.needs_balance |= balance;
  }
}

void SchedulerCore::SaveServers() {
  PersistEffect effect;
  effect.ticket = NewTicket(Pending());
  effect.writes.push_back({kTermKey, absl::StrCat(term_)});
  for (const std::string& name : unsaved_drains_) {
    effect.writes.push_back(SaveDrain(name, membership_.drained_by_hand(name)));
  }
  save_servers_ticket_ = last_save_ = effect.ticket;
  effects_.push_back(std::move(effect));
}

void SchedulerCore::SaveServersDone(uint64_t ticket, const absl::Status& status,
                                    absl::Time now) {
  if (status.ok()) stored_save_ = ticket;
  // A newer write follows this one; only its end counts.
  if (save_servers_ticket_ != ticket) return;
  save_servers_ticket_ = 0;
  save_servers_error_ = std::string(status.message());
  if (status.ok()) {
    unsaved_drains_.clear();
    save_servers_retry_ = absl::InfiniteFuture();
    return;
  }
  save_servers_retry_ = now + kSaveRetry;
  Note(LogLevel::kError,
       absl::StrCat("what was decided about servers cannot be stored: ",
                    status.message()));
}

}  // namespace kronserve::scheduler
