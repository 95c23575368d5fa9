// What a preconditioner server decides: the state machine behind every call.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.
// Knows no transport, thread or clock. Inputs are calls of this class with the
// time; outputs are return values and Effects. server_runtime.h drives it with
// threads, a simulation may drive it without.
// Size: it has more public methods than a class should, one per input.
// Source: PROTOCOL.md 2 to 7, 9 and 10; docs/moving_layers.md.

#ifndef KRONSERVE_SERVER_SERVER_CORE_H_
#define KRONSERVE_SERVER_SERVER_CORE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/repeated_field.h"
#include "kronserve/v1/checkpoint.pb.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "kronserve/v1/scheduler.pb.h"
#include "proto/tensor_chunks.h"
#include "server/admission.h"
#include "server/effects.h"
#include "server/finished_jobs.h"
#include "server/job_state.h"
#include "server/tasks.h"

namespace kronserve::server {

struct CoreOptions {
  std::string name;
  uint64_t incarnation = 0;
  int64_t memory_limit_bytes = 0;
  int64_t staging_limit_bytes = 0;
  int64_t refresh_threads = 1;
  // Layers are restored from checkpoints and written to them.
  bool has_checkpoints = false;
  // Between two background checkpoints of one layer.
  absl::Duration checkpoint_interval = absl::Seconds(10);
};

// A tensor as it arrived, and what checking it found (tasks.h: CheckTensor).
struct CheckedTensor {
  Tensor tensor;  // May be null when `status` is an error.
  absl::Status status;
};

// A push whose header was accepted. Ends in StagePush() or AbandonPush().
struct PushTicket {
  // One per item: what its chunks must be.
  std::vector<ChunkAssembler::Slot> slots;
  int64_t reserved_bytes = 0;
};

// A transfer whose header was accepted. Ends in InstallLayer() or
// AbandonTransfer().
struct TransferTicket {
  std::vector<ChunkAssembler::Slot> slots;  // One per tensor of the snapshot.
  // What UnpackLayer() has to be told.
  v1::LayerSpec layer;
  v1::JobOptions options;
  bool installed = false;  // A repeat: its chunks are not needed.
  int64_t reserved_bytes = 0;
};

// A step whose end was taken.
struct StepTicket {
  std::vector<ChunkAssembler::Slot> slots;  // One per item.
  // One per item. Each gets one Reply; for some it is already in the effects,
  // the others need AddGradient().
  std::vector<uint64_t> requests;
};

// Thread safety: none.
// Invariants:    a request gets one answer unless it is cancelled; a
//                contribution ends as exactly one of merged, empty, void,
//                refused, late and lost with its layer; all state of a finished
//                job is gone; a layer that leaves is freed only when its new
//                owner has it or a newer assignment gives it up.
class ServerCore {
 public:
  explicit ServerCore(CoreOptions options);

  // ServerControl, errors as in preconditioner.proto.
  absl::StatusOr<v1::ConfigureJobResponse> ConfigureJob(
      const v1::ConfigureJobRequest& request, absl::Time now, Effects* effects);
  absl::Status DropJob(const v1::DropJobRequest& request, Effects* effects);

  // PushFactors: the header; then, when all chunks came, the tensors (null for
  // items without any). Errors as in preconditioner.proto; a ticket is used up
  // by StagePush() even when that fails.
  absl::StatusOr<PushTicket> BeginPush(const v1::PushFactorsHeader& header,
                                       absl::Time now, Effects* effects);
  absl::StatusOr<v1::PushFactorsResponse> StagePush(
      const PushTicket& ticket, const v1::PushFactorsHeader& header,
      const std::vector<CheckedTensor>& tensors, absl::Time now,
      Effects* effects);
  void AbandonPush(const PushTicket& ticket);

  // Precondition: takes the end of the step, then the gradients as they come.
  //
  //   deadline  when the caller wants to be answered at the latest; the job's
  //             step budget bounds it too.
  //
  // Errors as in preconditioner.proto. With kResourceExhausted the end of the
  // step was taken all the same, so that rounds close and make room.
  absl::StatusOr<StepTicket> EndStep(const v1::PreconditionHeader& header,
                                     absl::Time now, absl::Time deadline,
                                     Effects* effects);
  void AddGradient(uint64_t request, CheckedTensor gradient, absl::Time now,
                   Effects* effects);
  // The caller is gone: no answer is wanted. Unknown requests are ignored.
  void Cancel(uint64_t request);

  // LayerTransfer: the header of a layer that comes; then what UnpackLayer()
  // made of it. Errors as in preconditioner.proto; a ticket is used up by
  // InstallLayer() even when that fails.
  absl::StatusOr<TransferTicket> BeginTransfer(
      const v1::TransferLayerHeader& header, Effects* effects);
  absl::StatusOr<v1::TransferLayerResponse> InstallLayer(
      const TransferTicket& ticket, const v1::TransferLayerHeader& header,
      absl::StatusOr<LayerContents> contents, absl::Time now, Effects* effects);
  void AbandonTransfer(const TransferTicket& ticket);

  // Job checkpoints; errors as in preconditioner.proto.
  absl::StatusOr<v1::WriteCheckpointResponse> WriteCheckpoint(
      const v1::WriteCheckpointRequest& request, absl::Time now,
      Effects* effects);
  // The manifest to write for a checkpoint that is complete.
  absl::StatusOr<v1::CheckpointManifest> BeginCommit(
      const v1::CommitCheckpointRequest& request);
  // The process ends: writes every layer.
  void CheckpointAll(Effects* effects);

  // How far jobs are, from the scheduler.
  void SeeProgress(
      const google::protobuf::RepeatedPtrField<v1::JobProgress>& jobs,
      absl::Time now, Effects* effects);

  // Results of tasks.
  void FinishMerge(const LayerKey& key, absl::StatusOr<Averages> result,
                   absl::Time now, Effects* effects);
  void FinishRefresh(const LayerKey& key,
                     absl::StatusOr<curvature::Factorization<float>> result,
                     absl::Time now, Effects* effects);
  void FinishPrecondition(uint64_t request,
                          absl::StatusOr<PreconditionOutput> result,
                          Effects* effects);

  // `status` is what the new owner answered.
  void FinishTransfer(const LayerKey& key, uint64_t attempt,
                      const absl::Status& status, absl::Time now,
                      Effects* effects);
  // Absent: there is no checkpoint. An error says why none could be used.
  void FinishRestore(const LayerKey& key,
                     absl::StatusOr<std::optional<Restored>> result,
                     absl::Time now, Effects* effects);
  // `checkpoint` as in the task; the file of a job checkpoint.
  void FinishCheckpoint(const LayerKey& key, const std::string& checkpoint,
                        const absl::StatusOr<v1::CheckpointFile>& result,
                        absl::Time now, Effects* effects);

  // Does what is due by time: deadlines of rounds and of requests, transfers
  // to try again, background checkpoints.
  void Tick(absl::Time now, Effects* effects);
  // When Tick() has something to do next; InfiniteFuture() if never.
  absl::Time NextDeadline() const;

  // Without queue depth and busy time, which the driver knows.
  v1::GetServerStatusResponse Status() const;
  // `with_config`: for a registration.
  std::vector<v1::JobHeld> Held(bool with_config = false) const;
  uint64_t term_seen() const { return term_; }
  // A scheduler of this term has answered: older ones are over.
  void SeeTerm(uint64_t term) { term_ = std::max(term_, term); }

  // Null when the job or layer is not here; for tests and simulations.
  const HeldLayer* FindHeldLayer(const std::string& job, int layer) const;
  const LayerState* FindLayerState(const std::string& job, int layer) const;

 private:
  // How an item of a push would be answered now.
  struct Screened {
    // Absent: stage it.
    std::optional<v1::ContributionResult> answer;
    bool is_repeat = false;
    bool is_void = false;  // Of a closed step that was void.
    // Refused, and the refusal takes its place in the round.
    bool takes_place = false;
  };

  struct GradientRequest {
    std::string job;
    int64_t world_version = 0;
    int layer = 0;
    int item = 0;
    int64_t step = 0;
    absl::Time deadline;
    int64_t staged_bytes = 0;
    Tensor gradient;       // Null while its chunks come.
    v1::LayerReply reply;  // Begun when it is computed.
  };

  // server_core_config.cc
  absl::Status CheckTerm(uint64_t term);
  absl::Status Register(const v1::JobConfig& config, absl::Time now,
                        Effects* effects);
  absl::Status Adopt(JobState& job, const v1::JobConfig& config, absl::Time now,
                     Effects* effects);
  void Remove(const std::string& name, const std::string& why,
              Effects* effects);
  void ReleaseLayer(HeldLayer& layer, const std::string& why, Effects* effects);
  absl::Status Admit(const JobState* job, const v1::JobConfig& config);
  void Forget(const JobState& job, Effects* effects) const;
  static void WarnIfAhead(const JobState& job, const HeldLayer& layer,
                          Effects* effects);

  // server_core_moves.cc
  absl::StatusOr<JobState*> FindMovingJob(const v1::TransferLayerHeader& header,
                                          Effects* effects);
  static bool IsInstalled(const HeldLayer& layer,
                          const v1::TransferLayerHeader& header);
  absl::Status CheckTransfer(JobState& job,
                             const v1::TransferLayerHeader& header) const;
  void Install(JobState& job, HeldLayer& layer, const LayerContents& contents,
               bool same_world, Effects* effects);
  void HandOver(JobState& job, HeldLayer& layer, absl::Time now,
                Effects* effects);
  void DropHandedOver(JobState& job, int index, Effects* effects);
  void RetryLater(const JobState& job, HeldLayer& layer,
                  const absl::Status& status, absl::Time now, Effects* effects);

  // server_core_checkpoints.cc
  void BeginRestores(JobState& job, absl::Time now, Effects* effects);
  void BeginLayer(JobState& job, HeldLayer& layer, Restored restored,
                  Effects* effects);
  bool WriteCut(JobState& job, HeldLayer& layer, absl::Time now,
                Effects* effects);
  void WriteBackground(JobState& job, HeldLayer& layer, absl::Time now,
                       Effects* effects);
  void Write(JobState& job, HeldLayer& layer, Effects* effects);
  void WriteAll(JobState& job, Effects* effects);
  // When WriteBackground() has something to do; InfiniteFuture() if never.
  absl::Time BackgroundDue(const HeldLayer& layer) const;
  template <typename Request>
  absl::StatusOr<JobState*> FindCutJob(const Request& request);

  // server_core_push.cc
  Screened ScreenItem(JobState& job, const v1::PushFactorsHeader& header,
                      const v1::ContributionItem& item);
  v1::ContributionResult StageItem(JobState& job,
                                   const v1::PushFactorsHeader& header,
                                   const v1::ContributionItem& item,
                                   const CheckedTensor& tensor, absl::Time now);
  v1::ContributionResult Refuse(JobState& job,
                                const v1::PushFactorsHeader& header,
                                const v1::ContributionItem& item,
                                const absl::Status& why, absl::Time now);

  void CountAnswered(JobState& job, const v1::PushFactorsHeader& header,
                     const v1::ContributionItem& item,
                     const Screened& screened);

  // server_core_step.cc
  struct NewRequest {
    uint64_t id;
    absl::Time deadline;
  };
  ChunkAssembler::Slot OpenRequest(JobState& job,
                                   const v1::PreconditionHeader& header,
                                   int item, const NewRequest& opened,
                                   Effects* effects);
  void AnswerWaiting(JobState& job, HeldLayer& layer, Effects* effects);
  void RefuseWaiting(HeldLayer& layer, Effects* effects);
  void GiveAnswer(uint64_t request, const Answer& answer, Effects* effects);
  void ReplyFallback(uint64_t request, v1::FallbackReason reason,
                     const std::string& message, Effects* effects);
  void SendReply(uint64_t request, v1::LayerReply reply, Tensor value,
                 Effects* effects);
  void ExpireRequest(uint64_t request, Effects* effects);

  // server_core.cc
  absl::StatusOr<JobState*> FindJob(const v1::CallHeader& call, absl::Time now,
                                    Effects* effects);
  // JobState::CheckOwner() for every item whose layer exists; an item with
  // another layer is refused by itself. kAborted lists all layers with other
  // owners.
  template <typename Items>
  static absl::Status CheckOwners(const JobState& job,
                                  const v1::CallHeader& call,
                                  const Items& items, Effects* effects);
  HeldLayer* FindHeld(const LayerKey& key);
  void TickLayer(JobState& job, HeldLayer& layer, absl::Time now,
                 Effects* effects);
  // Lets a layer do all it can do now.
  void Advance(JobState& job, HeldLayer& layer, absl::Time now,
               Effects* effects);
  void CloseRounds(JobState& job, HeldLayer& layer, absl::Time now,
                   Effects* effects);
  // As Advance() for every layer that waits for a step to be over.
  void AdvanceEnding(JobState& job, absl::Time now, Effects* effects);
  absl::Time NextDeadlineOf(const HeldLayer& layer) const;
  void AdvanceAll(JobState& job, absl::Time now, Effects* effects);
  void Account(const JobState& job, const HeldLayer& layer,
               const ClosedRound& closed, Effects* effects);
  // Frees and counts a round that will not be merged.
  void GiveUpRound(const JobState& job, const HeldLayer& layer,
                   const ClosedRound& closed, Effects* effects);
  void CountRefresh(const curvature::Factorization<float>& factorization);

  const CoreOptions options_;
  uint64_t term_ = 0;  // Highest seen.
  uint64_t next_instance_ = 1;
  uint64_t next_request_ = 1;
  uint64_t next_attempt_ = 1;
  // Transfers under way: attempt to incarnation of the receiver. One at a time
  // for each; one to a lost process holds up none to its successor.
  std::map<uint64_t, uint64_t> transfers_;
  MemoryAdmission memory_;
  StagingBudget staging_;
  FinishedJobs finished_;
  std::map<std::string, std::unique_ptr<JobState>> jobs_;
  std::map<uint64_t, GradientRequest> requests_;
  v1::ServerCounters counters_;
};

template <typename Items>
absl::Status ServerCore::CheckOwners(const JobState& job,
                                     const v1::CallHeader& call,
                                     const Items& items, Effects* effects) {
  absl::Status refused;
  std::set<int> elsewhere;
  for (const auto& item : items) {
    if (item.layer() < 0 || item.layer() >= job.config().layers_size()) {
      continue;
    }
    const absl::Status status = job.CheckOwner(call, item.layer());
    if (absl::IsUnavailable(status)) effects->behind = true;
    if (absl::IsAborted(status)) elsewhere.insert(item.layer());
    if (refused.ok()) refused = status;
  }
  if (elsewhere.empty()) return refused;
  v1::LayersElsewhere payload;
  payload.mutable_layers()->Add(elsewhere.begin(), elsewhere.end());
  refused.SetPayload(kElsewherePayload,
                     absl::Cord(payload.SerializeAsString()));
  return refused;
}

// "layer 'fc1', factor A, step 7": how messages name a contribution.
std::string NameContribution(const LayerState& layer, v1::FactorKind kind,
                             int64_t step);

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_SERVER_CORE_H_
