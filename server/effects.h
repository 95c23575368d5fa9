// What a core wants done: tasks to run, answers to send, lines to log.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.

#ifndef KRONSERVE_SERVER_EFFECTS_H_
#define KRONSERVE_SERVER_EFFECTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kronserve/v1/preconditioner.pb.h"
#include "kronserve/v1/scheduler.pb.h"
#include "proto/tensor_chunks.h"
#include "server/layer_snapshot.h"
#include "server/tasks.h"

namespace kronserve::server {

// Which layer a merge or refresh belongs to. Results of a layer that was
// freed in the meantime find nobody and are dropped.
struct LayerKey {
  std::string job;
  int layer = 0;
  uint64_t instance = 0;  // Of the layer's state; never used twice.
};

struct MergeTask {
  LayerKey key;
  MergeInput input;
};

struct RefreshTask {
  LayerKey key;
  RefreshInput input;
};

struct PreconditionTask {
  uint64_t request = 0;
  PreconditionInput input;
};

// Sends a layer to its new owner: PackLayer(), then LayerTransfer. Ends in
// FinishTransfer().
struct TransferTask {
  LayerKey key;
  uint64_t attempt = 0;  // Never used twice.
  v1::ServerAddress target;
  v1::TransferLayerHeader header;  // Without its snapshot.
  LayerContents contents;
};

// Looks for the newest state of a layer that nobody hands over. Ends in
// FinishRestore().
struct RestoreTask {
  LayerKey key;
  std::shared_ptr<const v1::JobConfig> config;
};

// What a RestoreTask found.
struct Restored {
  LayerContents contents;
  v1::RecoverySource source = v1::RECOVERY_SOURCE_UNSPECIFIED;
  std::string message;  // Why no newer state could be had; empty: all is well.
};

// Writes a layer. Ends in FinishCheckpoint().
struct CheckpointTask {
  LayerKey key;
  std::string checkpoint;  // Id of a job checkpoint; empty: in the background.
  LayerContents contents;
};

// Removes the background checkpoints of a run that is over.
struct ForgetTask {
  std::string job;
  std::string run_id;
};

// The answer to one gradient request; each request gets exactly one, unless it
// was cancelled.
struct Reply {
  uint64_t request = 0;
  v1::LayerReply reply;
  Tensor value;  // V when preconditioned; null otherwise.
  uint64_t epoch = 0;
};

// In the order in which they are to be begun. A call that returns an error may
// have effects too.
struct Effects {
  std::vector<MergeTask> merges;
  std::vector<RefreshTask> refreshes;
  std::vector<PreconditionTask> preconditions;
  std::vector<TransferTask> transfers;
  std::vector<RestoreTask> restores;
  std::vector<CheckpointTask> checkpoints;
  std::vector<ForgetTask> forgets;
  std::vector<Reply> replies;
  std::vector<std::string> warnings;  // For the log.
  // A caller showed a newer world or epoch, or a layer has moved: the next
  // heartbeat is due soon.
  bool behind = false;
};

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_EFFECTS_H_
