// One job on this server: its configuration, the ends of its steps, and the
// layers that are held here.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.

#ifndef KRONSERVE_SERVER_JOB_STATE_H_
#define KRONSERVE_SERVER_JOB_STATE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kronserve/v1/job.pb.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "kronserve/v1/scheduler.pb.h"
#include "server/held_layer.h"
#include "server/job_plan.h"
#include "server/step_ledger.h"

namespace kronserve::server {

// A job checkpoint that this server writes its layers of.
struct Cut {
  std::string id;
  int64_t step = 0;               // Everything up to this step is in it.
  std::map<int, uint64_t> taken;  // Layer to instance: state was taken.
  std::map<int, v1::CheckpointFile> files;  // By layer.
  absl::Status failure;                     // Of a file.
};

// Thread safety: none.
class JobState {
 public:
  // What changed in the set of layers, or was given up with the old world.
  struct Change {
    std::vector<HeldLayer> lost;
    std::vector<ClosedRound> dropped;  // Of layers that stay.
    std::vector<uint64_t> unanswered;  // Requests of the old world.
  };

  // `config` passed CheckConfigure(); `next_instance` numbers layer states.
  JobState(v1::JobConfig config, std::string server, uint64_t* next_instance);

  const v1::JobConfig& config() const { return *config_; }
  const std::shared_ptr<const v1::JobConfig>& shared_config() const {
    return config_;
  }
  const std::string& name() const { return config_->job(); }
  uint64_t epoch() const { return config_->assignment().epoch(); }
  int64_t world_version() const { return config_->world().version(); }
  StepLedger& ledger() { return ledger_; }
  const StepLedger& ledger() const { return ledger_; }

  // Null when the layer is not held here.
  HeldLayer* FindLayer(int index);
  std::map<int, HeldLayer>& layers() { return layers_; }
  const std::map<int, HeldLayer>& layers() const { return layers_; }

  // A rank has begun `step`: every earlier one is over on all ranks. False when
  // that is no news.
  bool SeeBegun(int64_t step);
  // All steps before `step` are over for this layer.
  bool IsOver(const HeldLayer& layer, int64_t step) const;
  // Newest step seen in a call; absent before the first.
  std::optional<int64_t> newest_step() const { return newest_step_; }
  void SeeStep(const v1::CallHeader& call);

  std::optional<Cut>& cut() { return cut_; }
  // The step after which this layer's state is still to be taken for a job
  // checkpoint; absent when it is not.
  std::optional<int64_t> CutOf(const HeldLayer& layer) const;
  // How the layers here began that nobody handed over.
  std::map<int, v1::LayerRecovery>& recoveries() { return recoveries_; }
  const std::map<int, v1::LayerRecovery>& recoveries() const {
    return recoveries_;
  }

  // What moves or is saved of a layer: its state with its identity.
  LayerContents Contents(const HeldLayer& layer, int64_t through) const;
  // The address of a server of the assignment; null when it is not listed.
  const v1::ServerAddress* FindServer(const std::string& name) const;

  // True when `config` is another run or another network under this name, so
  // that nothing of this job belongs to it.
  bool IsReplacedBy(const v1::JobConfig& config) const;

  // Layers that would be held here under `config`, ascending: those owned and
  // those that this server has the state of and is to hand over.
  std::vector<int> HeldUnder(const v1::JobConfig& config) const;

  // Takes a newer world (all layers start it, from its job checkpoint if it has
  // one) or a newer assignment (layers that stay keep their state).
  Change Adopt(v1::JobConfig config);

  // The fences of a data call (PROTOCOL.md 2).
  //
  // Errors:
  //   kAborted          an older world, or another process of this rank; the
  //                     newest assignment is attached.
  //   kUnavailable      a newer world than this server knows.
  //   kInvalidArgument  the rank is not in the world.
  absl::Status CheckFences(const v1::CallHeader& call) const;

  // Whether this server answers `layer` (an existing one) for the call.
  //
  // Errors:
  //   kAborted      another server answers it at this step; the newest
  //                 assignment is attached.
  //   kUnavailable  the caller's assignment is newer than this server's.
  absl::Status CheckOwner(const v1::CallHeader& call, int layer) const;

  // kAborted with the newest assignment attached.
  absl::Status AbortedWithAssignment(const std::string& message) const;

  // Forgets ends of steps that no open round needs any more.
  void PruneLedger();

 private:
  void AddLayer(int index);
  bool Keep(HeldLayer& layer, bool new_world) const;
  void StartWorld(Change* change);

  std::shared_ptr<const v1::JobConfig> config_;
  const std::string server_;
  uint64_t* next_instance_;
  JobPlan plan_;
  StepLedger ledger_;
  std::map<int, HeldLayer> layers_;
  int64_t begun_ = 0;  // Every step before it is over.
  std::optional<int64_t> newest_step_;
  int64_t routed_step_ = -1;  // Of calls that knew no newer assignment.
  std::optional<Cut> cut_;
  std::map<int, v1::LayerRecovery> recoveries_;
};

// Payload of a kAborted status: a serialised v1::Assignment.
inline constexpr char kAssignmentPayload[] = "kronserve.v1.Assignment";
// With it, when layers of the call have other owners: a v1::LayersElsewhere.
inline constexpr char kElsewherePayload[] = "kronserve.v1.LayersElsewhere";

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_JOB_STATE_H_
