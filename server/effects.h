// What a core wants done: tasks to run, answers to send, lines to log.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.

#ifndef KRONSERVE_SERVER_EFFECTS_H_
#define KRONSERVE_SERVER_EFFECTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kronserve/v1/preconditioner.pb.h"
#include "proto/tensor_chunks.h"
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
  std::vector<Reply> replies;
  std::vector<std::string> warnings;  // For the log.
  // A caller showed a newer world or epoch: ask the scheduler soon.
  bool behind = false;
};

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_EFFECTS_H_
