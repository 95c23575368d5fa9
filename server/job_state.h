// One job on this server: its configuration, the ends of its steps, and the
// layers that are owned here.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.

#ifndef KRONSERVE_SERVER_JOB_STATE_H_
#define KRONSERVE_SERVER_JOB_STATE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kronserve/v1/job.pb.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "server/job_plan.h"
#include "server/layer_state.h"
#include "server/step_ledger.h"

namespace kronserve::server {

// A layer that this server owns.
struct OwnedLayer {
  int index = 0;
  uint64_t instance = 0;     // Never used twice; see LayerKey.
  int64_t from_step = 0;     // First step answered here.
  int64_t newest_step = -1;  // Newest step seen in a call or a closed round.
  LayerState state;
  // Gradient requests that wait for an answer, oldest first.
  std::vector<uint64_t> waiting;
};

// Thread safety: none.
class JobState {
 public:
  // What changed in the set of layers, or was given up with the old world.
  struct Change {
    std::vector<OwnedLayer> lost;
    std::vector<ClosedRound> dropped;  // Of layers that stay.
    std::vector<uint64_t> unanswered;  // Requests of the old world.
  };

  // `config` passed CheckConfigure(); `next_instance` numbers layer states.
  JobState(v1::JobConfig config, std::string server, uint64_t* next_instance);

  const v1::JobConfig& config() const { return config_; }
  const std::string& name() const { return config_.job(); }
  uint64_t epoch() const { return config_.assignment().epoch(); }
  int64_t world_version() const { return config_.world().version(); }
  StepLedger& ledger() { return ledger_; }
  const StepLedger& ledger() const { return ledger_; }

  // Null when the layer is not owned here.
  OwnedLayer* FindLayer(int index);
  std::map<int, OwnedLayer>& layers() { return layers_; }
  const std::map<int, OwnedLayer>& layers() const { return layers_; }

  // True when `config` is another run or another network under this name, so
  // that nothing of this job belongs to it.
  bool IsReplacedBy(const v1::JobConfig& config) const;

  // Takes a newer world (all layers start it) or a newer assignment (layers
  // that stay keep their state).
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
  //   kAborted      another server owns it; the newest assignment is attached.
  //   kUnavailable  the caller's assignment is newer than this server's.
  absl::Status CheckOwner(const v1::CallHeader& call, int layer) const;

  // Forgets ends of steps that no open round needs any more.
  void PruneLedger();

 private:
  absl::Status AbortedWithAssignment(const std::string& message) const;
  void AddLayer(int index);

  v1::JobConfig config_;
  const std::string server_;
  uint64_t* next_instance_;
  JobPlan plan_;
  StepLedger ledger_;
  std::map<int, OwnedLayer> layers_;
};

// Payload of a kAborted status: a serialised v1::Assignment.
inline constexpr char kAssignmentPayload[] = "kronserve.v1.Assignment";

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_JOB_STATE_H_
