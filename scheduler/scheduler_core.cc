// Servers, time and effects of the scheduler; jobs are in
// scheduler_core_jobs.cc.

#include "scheduler/scheduler_core.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "scheduler/job_report.h"

namespace kronserve::scheduler {
namespace {

// Finished jobs that status still shows.
constexpr size_t kShowFinished = 100;
constexpr absl::Duration kSaveRetry = absl::Seconds(1);

}  // namespace

SchedulerCore::SchedulerCore(const CoreOptions& options, uint64_t term,
                             absl::Time now)
    : options_(options),
      term_(term),
      last_tick_(now),
      membership_(options.lease) {}

absl::StatusOr<std::unique_ptr<SchedulerCore>> SchedulerCore::Create(
    const CoreOptions& options, const StateMap& stored, uint64_t term,
    absl::Time now) {
  auto core =
      std::unique_ptr<SchedulerCore>(new SchedulerCore(options, term, now));
  KRONSERVE_RETURN_IF_ERROR(RestoreJobs(stored, options.lease.validity(), now,
                                        &core->jobs_, &core->high_water_));
  for (const auto& [name, job] : core->jobs_) {
    for (const v1::ServerAddress& server : job.configures.servers()) {
      core->membership_.Expect(server, now);
    }
    for (const v1::ServerAddress& server : job.drops.servers()) {
      core->membership_.Expect(server, now);
    }
  }
  return core;
}

absl::StatusOr<v1::RegisterServerResponse> SchedulerCore::RegisterServer(
    const v1::RegisterServerRequest& request, absl::Time now) {
  KRONSERVE_ASSIGN_OR_RETURN(const Membership::Registration registration,
                             membership_.Register(request, now));
  const ServerMember& server = *membership_.Find(request.name());
  // Our own term it can know only from an earlier registration here: a first
  // one that shows it has met another scheduler.
  if (request.term_seen() > term_ ||
      (registration.is_new && request.term_seen() == term_)) {
    RaiseTermAbove(request.term_seen());
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
  const ServerMember* known = membership_.Find(request.name());
  const bool was_dead = known != nullptr && known->dead;
  KRONSERVE_RETURN_IF_ERROR(membership_.Heartbeat(request, now));
  if (was_dead) {
    Note(LogLevel::kInfo,
         absl::StrCat("server '", request.name(), "' is heard of again"));
    WantOwners();
  }
  NoteHeld(*membership_.Find(request.name()), request.held(), now);
  v1::ServerHeartbeatResponse response;
  response.set_term(term_);
  return response;
}

void SchedulerCore::RaiseTermAbove(uint64_t term_seen) {
  term_ = term_seen + 1;
  Note(LogLevel::kWarning,
       absl::StrCat("a member has seen term ", term_seen,
                    " of another scheduler; this one goes on with term ",
                    term_));
  PersistEffect effect;
  effect.ticket = NewTicket(Pending());
  effect.writes = {{kTermKey, absl::StrCat(term_)}};
  effects_.push_back(std::move(effect));
}

void SchedulerCore::NoteHeld(
    const ServerMember& server,
    const google::protobuf::RepeatedPtrField<v1::JobHeld>& held,
    absl::Time now) {
  std::set<std::string> seen;
  for (const v1::JobHeld& job : held) {
    seen.insert(job.job());
    NoteHeldJob(server, job, now);
  }
  for (auto& [name, job] : jobs_) {
    if (seen.count(name) > 0) continue;
    job.configures.Lags(server.address, 0, now, options_.lease.heartbeat);
  }
}

void SchedulerCore::NoteHeldJob(const ServerMember& server,
                                const v1::JobHeld& held, absl::Time now) {
  Job* job = FindJob(held.job());
  if (job == nullptr || !job->has_world()) {
    // Perhaps a job of an earlier life of ours: leave it, but stay above it.
    high_water_.Raise(held.world_version(), held.epoch());
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

void SchedulerCore::LoseServer(const std::string& name,
                               const std::string& why) {
  for (auto& [job_name, job] : jobs_) {
    if (job.drops.Has(name)) {
      job.drops.Remove(name);
      job.durable = false;
    }
    job.configures.Remove(name);
    job.refusing.erase(name);
    int64_t lost = 0;
    for (std::string& owner : job.owners) {
      if (owner != name) continue;
      owner.clear();
      ++lost;
    }
    if (lost == 0) continue;
    job.needs_plan = true;
    Note(LogLevel::kWarning,
         absl::StrCat("server '", name, "' ", why, ": ", lost,
                      " layers of job '", job_name,
                      "' lost their averages and start again from the next "
                      "factors"));
  }
}

void SchedulerCore::WantOwners() {
  for (auto& [name, job] : jobs_) {
    if (job.has_world() && !job.finished && job.num_ownerless() > 0) {
      job.needs_plan = true;
    }
  }
}

void SchedulerCore::Tick(absl::Time now) {
  const absl::Duration late = now - last_tick_ - options_.tick;
  last_tick_ = now;
  if (late > options_.tick) {
    membership_.ExtendLeases(late);
    for (auto& [name, job] : jobs_) job.roster.ExtendLeases(late);
  }
  for (const std::string& name : membership_.Expire(now)) {
    Note(LogLevel::kWarning,
         absl::StrCat("server '", name, "' is dead: no heartbeat for ",
                      absl::FormatDuration(options_.lease.validity())));
    LoseServer(name, "is dead");
  }
  for (auto& [name, job] : jobs_) TickJob(&job, now);
  ForgetJobs(now);
}

void SchedulerCore::TickJob(Job* job, absl::Time now) {
  job->roster.Expire(now);
  if (job->roster.AnyAlive(now)) {
    job->silent_since = absl::InfiniteFuture();
  } else {
    job->silent_since = std::min(job->silent_since, now);
  }
  if (!job->finished && now - job->silent_since >= options_.job_ttl) {
    Note(LogLevel::kWarning,
         absl::StrCat("job '", job->name, "' had no rank for ",
                      absl::FormatDuration(options_.job_ttl),
                      ": it has expired"));
    EndJob(job);
  }
  if (job->needs_plan) Replan(job);
  if (!job->durable && job->save_ticket == 0 && now >= job->save_retry) {
    Save(job);
  }
  SendDue(job, now);
}

void SchedulerCore::ForgetJobs(absl::Time now) {
  std::map<uint64_t, std::string> finished;
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    Job& job = it->second;
    const bool settled = job.durable && job.drops.empty();
    if (job.finished && settled) finished[job.finish_order] = it->first;
    // Ranks came, never became a world, and left.
    const bool never_began =
        !job.finished && !job.has_world() && !job.roster.AnyAlive(now);
    if (never_began && !settled) EndJob(&job);
    it = never_began && settled ? jobs_.erase(it) : std::next(it);
  }
  while (finished.size() > kShowFinished) {
    jobs_.erase(finished.begin()->second);
    finished.erase(finished.begin());
  }
}

void SchedulerCore::Save(Job* job) {
  Pending pending;
  pending.kind = Pending::Kind::kSave;
  pending.job = job->name;
  PersistEffect effect;
  effect.ticket = NewTicket(std::move(pending));
  effect.writes = SaveJob(*job, high_water_, term_);
  job->durable = false;
  job->save_ticket = effect.ticket;
  effects_.push_back(std::move(effect));
}

void SchedulerCore::SaveDone(Job* job, uint64_t ticket,
                             const absl::Status& status, absl::Time now) {
  // A newer write follows this one; only its end counts.
  if (job->save_ticket != ticket) return;
  job->save_ticket = 0;
  if (status.ok()) {
    job->durable = true;
    job->save_error.clear();
    return;
  }
  job->save_error = std::string(status.message());
  job->save_retry = now + kSaveRetry;
  Note(LogLevel::kError, absl::StrCat("state of job '", job->name,
                                      "' cannot be stored, nothing is sent "
                                      "until it is: ",
                                      status.message()));
}

void SchedulerCore::SendDue(Job* job, absl::Time now) {
  if (!job->durable) return;
  for (const v1::ServerAddress& server : job->configures.Due(now)) {
    const ServerMember* member = membership_.Find(server.name());
    if (member == nullptr || !member->usable()) continue;
    // First it drops what an earlier life of this job left there.
    if (job->drops.Has(server.name())) continue;
    ConfigureEffect effect;
    effect.ticket = NewTicket({Pending::Kind::kConfigure, job->name, server,
                               job->configures.version()});
    effect.server = member->address;
    effect.request.set_term(term_);
    *effect.request.mutable_config() = job->config;
    effects_.push_back(std::move(effect));
    job->configures.Sent(server.name(), now);
  }
  for (const v1::ServerAddress& server : job->drops.Due(now)) {
    const ServerMember* member = membership_.Find(server.name());
    if (member == nullptr || !member->usable()) continue;
    DropEffect effect;
    effect.ticket = NewTicket(
        {Pending::Kind::kDrop, job->name, server, job->drops.version()});
    effect.server = member->address;
    effect.request.set_term(term_);
    effect.request.set_job(job->name);
    effect.request.set_world_version(
        static_cast<int64_t>(job->drops.version()));
    effects_.push_back(std::move(effect));
    job->drops.Sent(server.name(), now);
  }
}

void SchedulerCore::EffectDone(uint64_t ticket, const absl::Status& status,
                               absl::Time now) {
  const auto found = pending_.find(ticket);
  if (found == pending_.end()) return;
  const Pending pending = std::move(found->second);
  pending_.erase(found);
  Job* job = FindJob(pending.job);
  if (job == nullptr) return;
  switch (pending.kind) {
    case Pending::Kind::kSave:
      SaveDone(job, ticket, status, now);
      break;
    case Pending::Kind::kConfigure:
      ConfigureDone(job, pending, status, now);
      break;
    case Pending::Kind::kDrop:
      DropDone(job, pending, status, now);
      break;
  }
  TickJob(job, now);
}

void SchedulerCore::ConfigureDone(Job* job, const Pending& pending,
                                  const absl::Status& status, absl::Time now) {
  if (status.ok()) {
    job->configures.Confirm(pending.server, pending.version);
    return;
  }
  job->configures.Fail(pending.server, status, now);
  Note(LogLevel::kWarning,
       absl::StrCat("server '", pending.server.name(), "' did not take epoch ",
                    pending.version, " of job '", job->name,
                    "': ", status.ToString()));
  if (status.code() == absl::StatusCode::kAborted) {
    // It has seen a higher term: registering anew, it tells us which.
    membership_.RequireRegistration(pending.server.name());
  }
  const bool refused = status.code() == absl::StatusCode::kResourceExhausted ||
                       status.code() == absl::StatusCode::kInvalidArgument;
  if (refused && pending.version == job->epoch()) {
    Refused(job, pending, status);
  }
}

void SchedulerCore::DropDone(Job* job, const Pending& pending,
                             const absl::Status& status, absl::Time now) {
  if (!status.ok()) {
    job->drops.Fail(pending.server, status, now);
    return;
  }
  job->drops.Confirm(pending.server, pending.version);
  if (pending.version < job->drops.version()) return;
  job->drops.Remove(pending.server.name());
  if (job->drops.empty()) Save(job);
}

void SchedulerCore::Note(LogLevel level, std::string message) {
  effects_.push_back(LogEffect{level, std::move(message)});
}

uint64_t SchedulerCore::NewTicket(Pending pending) {
  const uint64_t ticket = next_ticket_++;
  pending_[ticket] = std::move(pending);
  return ticket;
}

std::vector<Effect> SchedulerCore::TakeEffects() {
  std::vector<Effect> effects;
  effects.swap(effects_);
  return effects;
}

v1::GetStatusResponse SchedulerCore::GetStatus(absl::Time now) const {
  v1::GetStatusResponse response;
  response.set_term(term_);
  response.set_incarnation(options_.incarnation);
  response.set_store(options_.store);
  const UseByServer use = UseOfAll(jobs_, membership_, nullptr);
  for (const auto& [name, member] : membership_.members()) {
    v1::ServerStatus* server = response.add_servers();
    server->set_name(name);
    server->set_address(member.address.address());
    server->set_incarnation(member.address.incarnation());
    server->set_state(membership_.StateOf(member, now));
    server->set_heartbeat_age_seconds(
        absl::ToDoubleSeconds(now - member.last_heard));
    server->set_memory_bytes(member.memory_bytes);
    *server->mutable_load() = member.load;
    const auto used = use.find(name);
    if (used != use.end()) {
      server->set_predicted_refresh_seconds(used->second.seconds);
    }
  }
  for (const auto& [name, job] : jobs_) {
    *response.add_jobs() = DescribeJob(job, membership_, now);
  }
  return response;
}

}  // namespace kronserve::scheduler
