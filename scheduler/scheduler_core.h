// The scheduler as a state machine: messages and time in, answers and effects
// out.
//
// Layer: scheduler. May include common/, proto/ and placement/.
// No thread, transport, file or clock: see scheduler_runtime.h for the driver.
//
// Durability. What the scheduler decides is first written (PersistEffect) and
// only when the driver reports the write done does anybody hear of it: owners
// by ConfigureEffect, ranks by JoinJob and RankHeartbeat. So no assignment is
// sent before it is durable, and no heartbeat ever waits for a disk.
//
// After a restart every member has one fresh lease. Nothing is placed until
// the servers of the stored assignments have registered again, or that lease
// has passed (PROTOCOL.md 10).

#ifndef KRONSERVE_SCHEDULER_SCHEDULER_CORE_H_
#define KRONSERVE_SCHEDULER_SCHEDULER_CORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kronserve/v1/scheduler.pb.h"
#include "scheduler/effects.h"
#include "scheduler/job.h"
#include "scheduler/membership.h"
#include "scheduler/planner.h"
#include "scheduler/state_store.h"

namespace kronserve::scheduler {

struct CoreOptions {
  LeaseOptions lease;
  // How often the driver calls Tick(). A call that comes later than this was
  // held up, and so perhaps were heartbeats: all leases last longer by it.
  absl::Duration tick = absl::Milliseconds(100);
  // A job without living ranks is finished after this.
  absl::Duration job_ttl = absl::Hours(24);
  // Shown in GetStatus(): StateStore::Describe() and the process's number.
  std::string store = "memory";
  uint64_t incarnation = 1;
};

// Membership, jobs, assignments and rendezvous of one cluster.
//
// Thread safety: none; the driver serialises calls. No call blocks.
// Invariants:    `now` never goes back. Epochs and world versions only grow.
//                Public methods are one per RPC, Tick(), and the two for
//                effects: more than usual, because this is the whole contract.
//
// Errors of the RPC methods stand in scheduler.proto.
class SchedulerCore {
 public:
  // Takes up what an earlier run stored.
  //
  //   term  RaiseTerm()'s, at least 1.
  //
  // Errors:
  //   kDataLoss  a stored record is damaged; names it.
  static absl::StatusOr<std::unique_ptr<SchedulerCore>> Create(
      const CoreOptions& options, const StateMap& stored, uint64_t term,
      absl::Time now);

  absl::StatusOr<v1::RegisterServerResponse> RegisterServer(
      const v1::RegisterServerRequest& request, absl::Time now);
  absl::StatusOr<v1::ServerHeartbeatResponse> ServerHeartbeat(
      const v1::ServerHeartbeatRequest& request, absl::Time now);
  absl::StatusOr<v1::JoinJobResponse> JoinJob(const v1::JoinJobRequest& request,
                                              absl::Time now);
  absl::StatusOr<v1::RankHeartbeatResponse> RankHeartbeat(
      const v1::RankHeartbeatRequest& request, absl::Time now);
  absl::StatusOr<v1::FinishJobResponse> FinishJob(
      const v1::FinishJobRequest& request, absl::Time now);
  absl::StatusOr<v1::PutRendezvousResponse> PutRendezvous(
      const v1::PutRendezvousRequest& request);
  absl::StatusOr<v1::GetRendezvousResponse> GetRendezvous(
      const v1::GetRendezvousRequest& request);
  v1::GetStatusResponse GetStatus(absl::Time now) const;

  // Ends leases, re-places what was lost, retries what is not confirmed.
  void Tick(absl::Time now);

  // An effect with `ticket` has ended. Unknown tickets are ignored.
  void EffectDone(uint64_t ticket, const absl::Status& status, absl::Time now);

  // What is to be done since the last call, in order.
  std::vector<Effect> TakeEffects();

 private:
  // What a ticket stands for.
  struct Pending {
    enum class Kind { kSave, kConfigure, kDrop };
    Kind kind = Kind::kSave;
    std::string job;  // Empty: the term was saved.
    v1::ServerAddress server;
    uint64_t version = 0;  // Epoch or world version that was sent.
  };

  SchedulerCore(const CoreOptions& options, uint64_t term, absl::Time now);

  // Servers: scheduler_core.cc.
  void RaiseTermAbove(uint64_t term_seen);
  void NoteHeld(const ServerMember& server,
                const google::protobuf::RepeatedPtrField<v1::JobHeld>& held,
                absl::Time now);
  void NoteHeldJob(const ServerMember& server, const v1::JobHeld& held,
                   absl::Time now);
  void LoseServer(const std::string& name, const std::string& why);
  void WantOwners();

  // Jobs: scheduler_core_jobs.cc.
  Job* FindJob(const std::string& name);
  absl::StatusOr<Job*> FindOrCreateJob(const v1::JoinJobRequest& request,
                                       absl::Time now);
  absl::Status FormWorld(Job* job);
  absl::StatusOr<v1::JoinJobResponse> AnswerJoin(Job* job);
  std::vector<std::string> WaitingFor(const Job& job) const;
  absl::StatusOr<Job*> FindWorld(const std::string& name,
                                 int64_t world_version);
  void FailWorld(Job* job, const absl::Status& failure);
  void EndJob(Job* job);

  // Assignments: scheduler_core_jobs.cc.
  void Replan(Job* job);
  void Issue(Job* job, const std::vector<std::string>& owners, bool all,
             int64_t from_step);
  void Refused(Job* job, const Pending& pending, const absl::Status& status);

  // Effects: scheduler_core.cc.
  void Save(Job* job);
  void SaveDone(Job* job, uint64_t ticket, const absl::Status& status,
                absl::Time now);
  void SendDue(Job* job, absl::Time now);
  void ConfigureDone(Job* job, const Pending& pending,
                     const absl::Status& status, absl::Time now);
  void DropDone(Job* job, const Pending& pending, const absl::Status& status,
                absl::Time now);
  void TickJob(Job* job, absl::Time now);
  void ForgetJobs(absl::Time now);
  void Note(LogLevel level, std::string message);
  uint64_t NewTicket(Pending pending);

  const CoreOptions options_;
  uint64_t term_;
  absl::Time last_tick_;
  Membership membership_;
  JobTable jobs_;
  HighWater high_water_;
  uint64_t finished_jobs_ = 0;
  uint64_t next_ticket_ = 1;
  std::map<uint64_t, Pending> pending_;
  std::vector<Effect> effects_;
};

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_SCHEDULER_CORE_H_
