// Time and effects of the scheduler.

#include "scheduler/scheduler_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "scheduler/job_report.h"

namespace kronserve::scheduler {
namespace {

// Finished jobs that status still shows.
constexpr size_t kShowFinished = 100;

}  // namespace

SchedulerCore::SchedulerCore(const CoreOptions& options, uint64_t term,
                             absl::Time now)
    : options_(options),
      term_(term),
      started_(now),
      last_tick_(now),
      last_heard_(now),
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
  for (const std::string& name : RestoreDrains(stored)) {
    core->membership_.SetDrained(name, true);
  }
  return core;
}

bool SchedulerCore::HearsNobody(absl::Time now) const {
  return now - last_heard_ > options_.lease.patience();
}

void SchedulerCore::ExtendLeases(absl::Duration by) {
  membership_.ExtendLeases(by);
  for (auto& [name, job] : jobs_) job.roster.ExtendLeases(by);
}

// A member has called, whatever it is answered.
void SchedulerCore::Heard(absl::Time now) {
  // What ran on before we knew that we heard nobody.
  if (HearsNobody(last_tick_)) ExtendLeases(options_.lease.patience());
  last_heard_ = now;
}

// Silence counts against a member only while we are on time and hear another:
// otherwise it is we who were late, or are cut off.
void SchedulerCore::StretchLeases(absl::Time now) {
  const bool heard_nobody = HearsNobody(last_tick_);
  const absl::Duration passed = now - std::exchange(last_tick_, now);
  if (passed > 2 * options_.tick) {
    ExtendLeases(passed - options_.tick);
    last_heard_ += passed - options_.tick;  // Ours, not a silence of theirs.
  } else if (HearsNobody(now)) {
    ExtendLeases(passed);
  }
  if (HearsNobody(now) && !heard_nobody && !membership_.members().empty()) {
    Note(LogLevel::kWarning,
         absl::StrCat("no server and no rank was heard for ",
                      absl::FormatDuration(options_.lease.patience()),
                      ": nobody is taken for dead until somebody is heard"));
  }
}

void SchedulerCore::Tick(absl::Time now) {
  StretchLeases(now);
  for (const std::string& name : membership_.Expire(now)) {
    if (membership_.Find(name)->may_leave) {
      Note(LogLevel::kInfo,
           absl::StrCat("server '", name, "' has left after its drain"));
    } else {
      Note(LogLevel::kWarning,
           absl::StrCat("server '", name, "' is dead: no heartbeat for ",
                        absl::FormatDuration(options_.lease.validity())));
    }
    LoseServer(name, "is dead");
    // What waited for it need wait no longer.
    WantMoves(/*balance=*/false);
  }
  if (save_servers_ticket_ == 0 && now >= save_servers_retry_) SaveServers();
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
    job->expired = true;
    EndJob(job);
  }
  if (job->needs_plan || (job->needs_moves && MayMove(*job, now)) ||
      (job->needs_balance && MayBalance(*job, now))) {
    Replan(job, now);
  }
  if (!job->durable && job->save_ticket == 0 && now >= job->save_retry) {
    Save(job);
  }
  SendDue(job, now);
  SendCheckpoint(job, now);
}

void SchedulerCore::ForgetJobs(absl::Time now) {
  std::map<uint64_t, std::string> finished;
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    Job& job = it->second;
    const bool settled = job.durable && job.drops.empty();
    if (job.finished && settled) finished[job.finish_order] = it->first;
    // Ranks came, never became a world, and left.
    const bool never_began =
        !job.finished && !job.kept() && !job.roster.AnyAlive(now);
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
  job->save_ticket = job->last_save = effect.ticket;
  effects_.push_back(std::move(effect));
}

void SchedulerCore::SaveDone(Job* job, uint64_t ticket,
                             const absl::Status& status, absl::Time now) {
  // Writes hold the whole state and are done in order.
  if (status.ok()) job->stored_save = ticket;
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
    SendConfigure(job, *member, server);
    job->configures.Sent(server.name(), now);
  }
  for (const v1::ServerAddress& server : job->drops.Due(now)) {
    const ServerMember* member = membership_.Find(server.name());
    if (member == nullptr || !member->usable()) continue;
    SendDrop(job, *member, server);
    job->drops.Sent(server.name(), now);
  }
}

void SchedulerCore::SendConfigure(Job* job, const ServerMember& member,
                                  const v1::ServerAddress& target) {
  ConfigureEffect effect;
  effect.ticket = NewTicket({Pending::Kind::kConfigure, job->name, target,
                             job->configures.version(), ""});
  effect.server = member.address;
  effect.request.set_term(term_);
  *effect.request.mutable_config() = job->config;
  effects_.push_back(std::move(effect));
}

void SchedulerCore::SendDrop(Job* job, const ServerMember& member,
                             const v1::ServerAddress& target) {
  DropEffect effect;
  effect.ticket = NewTicket(
      {Pending::Kind::kDrop, job->name, target, job->drops.version(), ""});
  effect.server = member.address;
  effect.request.set_term(term_);
  effect.request.set_job(job->name);
  effect.request.set_world_version(static_cast<int64_t>(job->drops.version()));
  effect.request.set_finished(!job->expired);
  effects_.push_back(std::move(effect));
}

void SchedulerCore::EffectDone(uint64_t ticket, const absl::Status& status,
                               absl::Time now) {
  const auto found = pending_.find(ticket);
  if (found == pending_.end()) return;
  const Pending pending = std::move(found->second);
  pending_.erase(found);
  if (pending.kind == Pending::Kind::kSaveServers) {
    SaveServersDone(ticket, status, now);
    return;
  }
  Job* job = FindJob(pending.job);
  if (job == nullptr) return;
  switch (pending.kind) {
    case Pending::Kind::kSaveServers:
    case Pending::Kind::kWrite:  // Ends in CheckpointWritten().
      break;
    case Pending::Kind::kCommit:
      CommitDone(job, pending, status, now);
      break;
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

uint64_t SchedulerCore::LastSave(const std::string& job) const {
  if (job.empty()) return last_save_;
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? 0 : found->second.last_save;
}

absl::Status SchedulerCore::Stored(const std::string& job,
                                   uint64_t save) const {
  const auto found = jobs_.find(job);
  if (!job.empty() && found == jobs_.end()) return absl::OkStatus();
  const uint64_t stored =
      job.empty() ? stored_save_ : found->second.stored_save;
  if (stored >= save) return absl::OkStatus();
  const std::string& error =
      job.empty() ? save_servers_error_ : found->second.save_error;
  return absl::UnavailableError(
      absl::StrCat("it was decided but is not stored yet",
                   error.empty() ? "" : ": ", error, "; ask again"));
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
    server->set_draining(membership_.draining(name));
    server->set_state_recovery(member.state_recovery);
    server->set_state_recovery_message(member.state_recovery_message);
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
