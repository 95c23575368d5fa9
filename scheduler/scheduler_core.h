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
// Moving (docs/moving_layers.md). LayerPlace says where a layer is to be and,
// while it moves, from where. Replan() gives layers new places, Issue() makes
// an epoch of them. Files: scheduler_core_servers.cc (membership and what
// servers say they hold), _jobs.cc (ranks, worlds), _placement.cc (places and
// epochs), _checkpoints.cc, _adoption.cc (servers that know more), and
// scheduler_core.cc (time and effects).
//
// After a restart every member has one fresh lease. Nothing is placed until
// the servers of the stored assignments have registered again, or that lease
// has passed (PROTOCOL.md 10). Where servers turn out to know more than the
// store, their jobs are taken over, and nothing is placed before the lease has
// passed: nobody can say who else is still to come.

#ifndef KRONSERVE_SCHEDULER_SCHEDULER_CORE_H_
#define KRONSERVE_SCHEDULER_SCHEDULER_CORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
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

// After a write failed, the next one is tried.
inline constexpr absl::Duration kSaveRetry = absl::Seconds(1);

struct CoreOptions {
  LeaseOptions lease;
  // How often the driver calls Tick(). A call that comes later than this was
  // held up, and so perhaps were heartbeats: all leases last longer by it. They
  // also stand still while nobody at all is heard.
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
//                Public methods are one per RPC, Tick(), and those for
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
  absl::StatusOr<v1::DrainServerResponse> DrainServer(
      const v1::DrainServerRequest& request, absl::Time now);
  absl::StatusOr<v1::PinLayersResponse> PinLayers(
      const v1::PinLayersRequest& request, absl::Time now);
  absl::StatusOr<v1::CheckpointJobResponse> CheckpointJob(
      const v1::CheckpointJobRequest& request, absl::Time now);
  absl::StatusOr<v1::RestoreJobResponse> RestoreJob(
      const v1::RestoreJobRequest& request, absl::Time now);
  v1::GetStatusResponse GetStatus(absl::Time now) const;

  // Ends leases, re-places what was lost, retries what is not confirmed.
  void Tick(absl::Time now);

  // An effect with `ticket` has ended. Unknown tickets are ignored.
  void EffectDone(uint64_t ticket, const absl::Status& status, absl::Time now);

  // A WriteCheckpointEffect has ended.
  void CheckpointWritten(
      uint64_t ticket,
      const absl::StatusOr<v1::WriteCheckpointResponse>& response,
      absl::Time now);

  // The newest write about `job` (empty: about servers); 0 if there was none.
  uint64_t LastSave(const std::string& job) const;

  // Whether what was decided about `job` (empty: about servers) up to the write
  // `save` is stored. A job that is forgotten is.
  //
  // Errors:
  //   kUnavailable  it is not yet; says why.
  absl::Status Stored(const std::string& job, uint64_t save) const;

  // What is to be done since the last call, in order.
  std::vector<Effect> TakeEffects();

 private:
  // What a ticket stands for.
  struct Pending {
    enum class Kind { kSaveServers, kSave, kConfigure, kDrop, kWrite, kCommit };
    Kind kind = Kind::kSaveServers;
    std::string job;
    v1::ServerAddress server;
    // Epoch or world version that was sent.
    uint64_t version = 0;
    std::string checkpoint;  // Its id.
  };

  // First steps that owners answer: of layers that have no source, and of those
  // that have one.
  struct Steps {
    int64_t placed = 0;
    int64_t moved = 0;
  };

  SchedulerCore(const CoreOptions& options, uint64_t term, absl::Time now);

  // Time.
  bool HearsNobody(absl::Time now) const;
  void ExtendLeases(absl::Duration by);
  void Heard(absl::Time now);
  void StretchLeases(absl::Time now);

  // Servers.
  void RaiseTermAbove(uint64_t term_seen);
  void NoteHeld(const ServerMember& server,
                const google::protobuf::RepeatedPtrField<v1::JobHeld>& held,
                absl::Time now);
  void NoteHeldJob(const ServerMember& server, const v1::JobHeld& held,
                   absl::Time now);
  void NoteRecoveries(const ServerMember& server, const v1::JobHeld& held,
                      Job* job);
  void LoseServer(const std::string& name, const std::string& why);
  void LoseServerOf(Job* job, const std::string& name, const std::string& why);
  void WantOwners();
  void WantMoves(bool balance);
  void FillHeartbeat(const std::string& server, absl::Time now,
                     v1::ServerHeartbeatResponse* response);
  int64_t LayersLeftOn(const std::string& server) const;
  void SaveServers();

  // A store that knows less than the servers: scheduler_core_adoption.cc.
  bool AdoptJob(const ServerMember& server, const v1::JobHeld& held,
                absl::Time now);
  bool InFirstLease() const;
  bool MayPlace() const;
  absl::Status NotKnown(const std::string& job) const;

  // Jobs.
  Job* FindJob(const std::string& name);
  absl::StatusOr<Job*> FindOrCreateJob(const v1::JoinJobRequest& request,
                                       absl::Time now);
  absl::Status FormWorld(Job* job);
  absl::Status TakeRestore(const v1::World& world, Job* job);
  absl::StatusOr<v1::JoinJobResponse> AnswerJoin(Job* job);
  std::vector<std::string> WaitingFor(const Job& job) const;
  absl::StatusOr<Job*> FindWorld(const std::string& name,
                                 int64_t world_version);
  void NoteStep(int64_t step, absl::Time now, Job* job);
  void DropWorld(Job* job);
  void FailWorld(Job* job, const absl::Status& failure);
  void EndJob(Job* job);

  // Places and epochs.
  void Replan(Job* job, absl::Time now);
  void PlaceLost(Job* job);
  bool MayMove(const Job& job, absl::Time now) const;
  bool MayBalance(const Job& job, absl::Time now) const;
  void PlaceMoves(Job* job, absl::Time now);
  void Issue(Job* job, bool all, const Steps& steps);
  void EndMoves(const std::string& server, const v1::JobHeld& held, Job* job);
  void EndVainMoves(const std::string& server, const v1::JobHeld& held,
                    absl::Time now, Job* job);
  int64_t NextStep(const Job& job) const;
  int64_t MoveStep(const Job& job) const;
  void Refused(Job* job, const Pending& pending, const absl::Status& status);
  absl::StatusOr<std::vector<int>> FindLayers(
      const Job& job, const v1::PinLayersRequest& request) const;

  // Checkpoints.
  int64_t CutStep(const Job& job,
                  const v1::CheckpointJobRequest& request) const;
  absl::Status CheckCut(const Job& job, const v1::CheckpointJobRequest& request,
                        absl::Time now) const;
  void SendCheckpoint(Job* job, absl::Time now);
  void SendCommit(Job* job, absl::Time now);
  void CommitDone(Job* job, const Pending& pending, const absl::Status& status,
                  absl::Time now);
  void EndCheckpoint(Job* job, const absl::Status& result);

  // Time and effects.
  void Save(Job* job);
  void SaveDone(Job* job, uint64_t ticket, const absl::Status& status,
                absl::Time now);
  void SaveServersDone(uint64_t ticket, const absl::Status& status,
                       absl::Time now);
  void SendDue(Job* job, absl::Time now);
  void SendConfigure(Job* job, const ServerMember& member,
                     const v1::ServerAddress& target);
  void SendDrop(Job* job, const ServerMember& member,
                const v1::ServerAddress& target);
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
  const absl::Time started_;
  absl::Time last_tick_;
  absl::Time last_heard_;  // Of any member, server or rank.
  // A member knows more than the store: nothing is placed before all members
  // have had one lease to say what they hold.
  bool store_lags_ = false;
  Membership membership_;
  JobTable jobs_;
  HighWater high_water_;
  uint64_t finished_jobs_ = 0;
  uint64_t next_ticket_ = 1;
  std::map<uint64_t, Pending> pending_;
  std::vector<Effect> effects_;

  // Servers drained or undrained by hand, and the term: not stored yet.
  std::set<std::string> unsaved_drains_;
  uint64_t save_servers_ticket_ = 0;  // 0: no write is under way.
  uint64_t last_save_ = 0;            // As in Job.
  uint64_t stored_save_ = 0;
  std::string save_servers_error_;
  absl::Time save_servers_retry_ = absl::InfiniteFuture();
};

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_SCHEDULER_CORE_H_
