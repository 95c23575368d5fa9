// Jobs, their worlds, and where ranks meet.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "placement/job_validation.h"
#include "scheduler/job_report.h"
#include "scheduler/limits.h"
#include "scheduler/scheduler_core.h"

namespace kronserve::scheduler {
namespace {

void RequireName(const char* field, const std::string& value,
                 std::vector<std::string>* faults) {
  const int64_t bytes = static_cast<int64_t>(value.size());
  if (bytes >= 1 && bytes <= placement::kMaxNameBytes) return;
  faults->push_back(absl::StrCat(field, " has ", bytes,
                                 " bytes, allowed are 1 to ",
                                 placement::kMaxNameBytes));
}

absl::Status ValidateJoin(const v1::JoinJobRequest& request) {
  std::vector<std::string> faults;
  RequireName("job", request.job(), &faults);
  RequireName("run_id", request.run_id(), &faults);
  RequireName("node", request.node(), &faults);
  if (request.world_size() < 1 || request.world_size() > kMaxWorldSize) {
    faults.push_back(absl::StrCat("world_size is ", request.world_size(),
                                  ", allowed are 1 to ", kMaxWorldSize));
  }
  if (request.rank() < 0 || request.rank() >= request.world_size()) {
    faults.push_back(absl::StrCat("rank ", request.rank(),
                                  " is not in a world of ",
                                  request.world_size()));
  }
  if (request.min_ranks() < 0 ||
      request.min_ranks() > std::max(request.world_size(), 0)) {
    faults.push_back(absl::StrCat("min_ranks is ", request.min_ranks(),
                                  ", allowed are 0 to world_size ",
                                  request.world_size()));
  }
  if (request.incarnation() == 0) faults.push_back("incarnation is 0");
  if (request.restart_count() < 0) {
    faults.push_back(
        absl::StrCat("restart_count is ", request.restart_count()));
  }
  if (request.next_step() < 0 || request.next_step() > kMaxNumber) {
    faults.push_back(absl::StrCat("next_step is ", request.next_step()));
  }
  const absl::Status job =
      placement::ValidateJob(request.layers(), request.options());
  if (!job.ok()) faults.push_back(std::string(job.message()));
  if (faults.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("job '", request.job().substr(0, 64),
                   "': ", absl::StrJoin(faults, "; ")));
}

}  // namespace

Job* SchedulerCore::FindJob(const std::string& name) {
  const auto found = jobs_.find(name);
  return found == jobs_.end() ? nullptr : &found->second;
}

absl::StatusOr<Job*> SchedulerCore::FindOrCreateJob(
    const v1::JoinJobRequest& request, absl::Time now) {
  Job* job = FindJob(request.job());
  if (job != nullptr && !job->finished) {
    const std::string difference = placement::DescribeDifference(
        request.layers(), request.options(), job->config.layers(),
        job->config.options());
    if (difference.empty()) return job;
    if (job->roster.AnyAlive(now)) {
      return absl::AlreadyExistsError(absl::StrCat(
          "job '", request.job(), "' lives with another plan: ", difference,
          "; choose another job name, or finish that job first"));
    }
    // Nobody lives in it any more: the name is free, its state goes.
    EndJob(job);
  }
  if (job == nullptr && jobs_.size() >= kMaxJobs) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this scheduler has ", jobs_.size(), " jobs, at most ",
                     kMaxJobs, " are allowed"));
  }
  Deliveries drops;
  bool durable = true;
  uint64_t last_save = 0;
  uint64_t stored_save = 0;
  if (job != nullptr) {
    drops = job->drops;
    durable = job->durable;
    last_save = job->last_save;
    stored_save = job->stored_save;
    jobs_.erase(request.job());
  }
  job =
      &jobs_
           .try_emplace(request.job(), request.job(), options_.lease.validity())
           .first->second;
  job->drops = drops;
  job->durable = durable;
  job->last_save = last_save;
  job->stored_save = stored_save;
  job->config.set_job(request.job());
  *job->config.mutable_layers() = request.layers();
  *job->config.mutable_options() = request.options();
  job->layers.assign(request.layers_size(), LayerPlace());
  return job;
}

absl::StatusOr<v1::JoinJobResponse> SchedulerCore::JoinJob(
    const v1::JoinJobRequest& request, absl::Time now) {
  Heard(now);
  KRONSERVE_RETURN_IF_ERROR(ValidateJoin(request));
  KRONSERVE_ASSIGN_OR_RETURN(Job * job, FindOrCreateJob(request, now));
  const int64_t generation = job->roster.generation();
  KRONSERVE_RETURN_IF_ERROR(job->roster.Claim(request, now));
  if (job->roster.generation() != generation) {
    job->failure = absl::OkStatus();
    job->was_ready = false;
    job->refusing.clear();
    job->board.Clear();
  }
  if (!job->failure.ok()) return job->failure;
  if (!job->roster.formed() && job->roster.complete()) {
    KRONSERVE_RETURN_IF_ERROR(FormWorld(job));
  }
  return AnswerJoin(job);
}

absl::Status SchedulerCore::FormWorld(Job* job) {
  if (!MayPlace()) return absl::OkStatus();
  if (membership_.Placeable().empty() && job->num_ownerless() > 0) {
    return absl::OkStatus();
  }
  const v1::World world = job->roster.MakeWorld(
      std::max(job->world_version(), high_water_.world_version) + 1);
  absl::StatusOr<std::vector<std::string>> owners =
      PlanOwners(*job, world, /*partial=*/false, membership_,
                 UseOfAll(jobs_, membership_, job));
  if (!owners.ok()) {
    return absl::Status(
        owners.status().code(),
        absl::StrCat("job '", job->name, "': ", owners.status().message()));
  }
  KRONSERVE_RETURN_IF_ERROR(TakeRestore(world, job));
  EndCheckpoint(job, absl::DataLossError(absl::StrCat(
                         "world ", job->world_version(),
                         " ended before all layers were written")));
  *job->config.mutable_world() = world;
  job->roster.MarkFormed();
  job->step = -1;
  job->pace = StepPace();
  job->needs_plan = job->needs_reissue = false;
  job->needs_moves = true;
  for (size_t i = 0; i < owners->size(); ++i) {
    job->layers[i].owner = (*owners)[i];
  }
  Note(LogLevel::kInfo,
       absl::StrCat("job '", job->name, "' has world ", world.version(), ": ",
                    world.ranks_size(), " ranks from step ", world.start_step(),
                    ", restart ", world.restart_count()));
  Issue(job, /*all=*/true, {world.start_step(), world.start_step()});
  return absl::OkStatus();
}

absl::Status SchedulerCore::TakeRestore(const v1::World& world, Job* job) {
  const std::string asked = job->roster.restore_checkpoint();
  const std::string id = asked.empty() ? job->wishes.restore_next() : asked;
  for (const v1::StoredCheckpoint& known : job->wishes.checkpoints()) {
    if (id.empty() || known.id() != id) continue;
    if (world.start_step() == known.step() + 1) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "job '", job->name, "' is to be restored from checkpoint '", id,
        "' of step ", known.step(), ", but its ranks begin at step ",
        world.start_step(), " instead of ", known.step() + 1,
        ": start them there, or take the restore back"));
  }
  job->config.set_restore_checkpoint(id);
  job->wishes.clear_restore_next();
  // What is on its way is not wanted any more.
  for (LayerPlace& place : job->layers) {
    if (!job->config.restore_checkpoint().empty()) place.source.clear();
  }
  return absl::OkStatus();
}

std::vector<std::string> SchedulerCore::WaitingFor(const Job& job) const {
  std::vector<std::string> lines;
  if (!job.roster.formed()) {
    lines = job.roster.Missing();
    const std::vector<std::string> awaited = membership_.Awaited();
    for (const std::string& name : awaited) {
      lines.push_back(absl::StrCat("server '", name,
                                   "' has not registered again since the "
                                   "scheduler started"));
    }
    if (awaited.empty() && !MayPlace()) {
      lines.push_back(
          "the store knows less than the servers: all that hold layers have "
          "one lease to register again");
    }
    if (membership_.Placeable().empty() && awaited.empty() &&
        job.num_ownerless() > 0) {
      lines.push_back(membership_.AnyUsable()
                          ? "every preconditioner server is being drained"
                          : "no preconditioner server is registered");
    }
    return lines;
  }
  if (job.durable) {
    lines = job.configures.Unconfirmed("epoch");
  } else {
    lines.push_back(absl::StrCat("epoch ", job.epoch(), " is being stored",
                                 job.save_error.empty() ? "" : ": ",
                                 job.save_error));
  }
  if (!job.was_ready && job.num_ownerless() > 0) {
    lines.push_back(absl::StrCat(job.num_ownerless(),
                                 " layers have no owner: no server is left "
                                 "that has room for them"));
  }
  return lines;
}

absl::StatusOr<v1::JoinJobResponse> SchedulerCore::AnswerJoin(Job* job) {
  v1::JoinJobResponse response;
  response.set_term(term_);
  response.set_heartbeat_ms(
      absl::ToInt64Milliseconds(options_.lease.heartbeat));
  response.set_lease_ms(absl::ToInt64Milliseconds(options_.lease.lease));
  for (std::string& line : WaitingFor(*job)) {
    response.add_waiting_for(std::move(line));
  }
  if (response.waiting_for_size() > 0) {
    response.set_state(v1::JOIN_STATE_PENDING);
    return response;
  }
  job->was_ready = true;
  response.set_state(v1::JOIN_STATE_READY);
  *response.mutable_world() = job->config.world();
  *response.mutable_assignment() = job->config.assignment();
  response.set_plan_hash(placement::PlanHash(job->config.layers(),
                                             job->config.options(),
                                             job->config.world().ranks_size()));
  for (std::string& line : PlanLines(job->config)) {
    response.add_plan(std::move(line));
  }
  for (std::string& line : Warnings(job->config)) {
    response.add_warnings(std::move(line));
  }
  return response;
}

absl::StatusOr<Job*> SchedulerCore::FindWorld(const std::string& name,
                                              int64_t world_version) {
  Job* job = FindJob(name);
  if (job == nullptr) return NotKnown(name);
  const bool newer = world_version > job->world_version();
  if (newer && InFirstLease()) return NotKnown(name);
  if (job->finished) return UnknownJob(name);
  if (newer) {
    return absl::NotFoundError(absl::StrCat(
        "job '", name, "' is known up to world ", job->world_version(),
        " here, not ", world_version,
        ": the scheduler lost state; the job goes on, join again at its next "
        "restart"));
  }
  if (world_version < job->world_version() || !job->roster.formed()) {
    return absl::AbortedError(absl::StrCat(
        "world ", world_version, " of job '", name, "' was replaced (world ",
        job->world_version(), ", restart ", job->roster.restart_count(),
        "): join again"));
  }
  return job;
}

absl::StatusOr<v1::RankHeartbeatResponse> SchedulerCore::RankHeartbeat(
    const v1::RankHeartbeatRequest& request, absl::Time now) {
  Heard(now);
  KRONSERVE_ASSIGN_OR_RETURN(Job * job,
                             FindWorld(request.job(), request.world_version()));
  if (request.step() < -1 || request.step() > kMaxNumber) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", request.step(), " is out of range"));
  }
  KRONSERVE_RETURN_IF_ERROR(
      job->roster.Renew(request.rank(), request.incarnation(), now));
  NoteStep(request.step(), now, job);
  v1::RankHeartbeatResponse response;
  response.set_term(term_);
  if (job->durable && job->epoch() > request.epoch()) {
    *response.mutable_assignment() = job->config.assignment();
  }
  return response;
}

void SchedulerCore::NoteStep(int64_t step, absl::Time now, Job* job) {
  if (step > kMaxNumber) return;
  job->step = std::max(job->step, step);
  job->pace.Note(job->step, now);
}

absl::StatusOr<v1::FinishJobResponse> SchedulerCore::FinishJob(
    const v1::FinishJobRequest& request, absl::Time now) {
  Heard(now);
  if (request.world_version() < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "world_version is ", request.world_version(), ", it starts at 1"));
  }
  Job* job = FindJob(request.job());
  // A server that holds it may still register: the caller asks again.
  if (job == nullptr && InFirstLease()) return NotKnown(request.job());
  if (job == nullptr || job->finished) return v1::FinishJobResponse();
  // A late word from a world that was already replaced ends nothing.
  const bool newer = request.world_version() > job->world_version();
  const bool current =
      request.world_version() == job->world_version() && job->roster.formed();
  if (!job->has_world() || !(newer || current)) return v1::FinishJobResponse();
  high_water_.Raise(request.world_version(), 0);
  // Its servers shall drop the world that has ended, not only the last one
  // that we knew.
  if (newer) job->config.mutable_world()->set_version(request.world_version());
  EndJob(job);
  return v1::FinishJobResponse();
}

absl::StatusOr<v1::PutRendezvousResponse> SchedulerCore::PutRendezvous(
    const v1::PutRendezvousRequest& request) {
  KRONSERVE_ASSIGN_OR_RETURN(Job * job,
                             FindWorld(request.job(), request.world_version()));
  KRONSERVE_RETURN_IF_ERROR(job->board.Put(request.key(), request.value()));
  return v1::PutRendezvousResponse();
}

absl::StatusOr<v1::GetRendezvousResponse> SchedulerCore::GetRendezvous(
    const v1::GetRendezvousRequest& request) {
  KRONSERVE_ASSIGN_OR_RETURN(Job * job,
                             FindWorld(request.job(), request.world_version()));
  return job->board.Get(request);
}

// All that may hold the job's world, or an earlier one, are to drop it.
void SchedulerCore::DropWorld(Job* job) {
  std::vector<v1::ServerAddress> holders = job->configures.servers();
  for (const v1::ServerAddress& server : job->drops.servers()) {
    holders.push_back(server);
  }
  high_water_.Raise(job->world_version(), job->epoch());
  job->drops.SetTargets(holders,
                        std::max(job->drops.version(),
                                 static_cast<uint64_t>(job->world_version())));
  job->configures.SetTargets({}, 0);
}

void SchedulerCore::FailWorld(Job* job, const absl::Status& failure) {
  Note(LogLevel::kError, std::string(failure.message()));
  DropWorld(job);
  EndCheckpoint(job, failure);
  if (job->wishes.restore_next().empty()) {
    // The next try starts from it as this one would have.
    job->wishes.set_restore_next(job->config.restore_checkpoint());
  }
  job->config.clear_restore_checkpoint();
  job->config.clear_world();
  job->config.clear_assignment();
  job->layers.assign(job->config.layers_size(), LayerPlace());
  job->roster.MarkGathering();
  job->failure = failure;
  Save(job);
}

void SchedulerCore::EndJob(Job* job) {
  Note(LogLevel::kInfo,
       absl::StrCat("job '", job->name, "' has ended at step ", job->step));
  DropWorld(job);
  job->config.clear_layers();
  job->config.clear_options();
  job->config.clear_assignment();
  job->config.clear_restore_checkpoint();
  job->layers.clear();
  job->wishes.Clear();
  job->checkpoint = CheckpointRun();
  job->board.Clear();
  job->needs_plan = job->needs_reissue = false;
  job->needs_moves = job->needs_balance = false;
  job->finished = true;
  job->finish_order = ++finished_jobs_;
  Save(job);
  // Its memory is free for layers that found no room.
  for (auto& [name, other] : jobs_) other.refusing.clear();
  WantOwners();
  WantMoves(/*balance=*/false);
}

}  // namespace kronserve::scheduler
