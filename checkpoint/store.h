// Where layers are kept while no server holds them.
//
// Layer: checkpoint. May include proto/ and common/.
// Background checkpoints are written per layer while a job trains, for crashes.
// A job checkpoint holds all layers of a job after one step and is complete
// when its manifest is written (docs/checkpoint_format.md).

#ifndef KRONSERVE_CHECKPOINT_STORE_H_
#define KRONSERVE_CHECKPOINT_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kronserve/v1/checkpoint.pb.h"
#include "kronserve/v1/job.pb.h"
#include "kronserve/v1/scheduler.pb.h"
#include "kronserve/v1/snapshot.pb.h"
#include "proto/tensor_chunks.h"

namespace kronserve::checkpoint {

// The state of one layer as it was read: `tensors` are those that
// `meta.tensors` lists, of the listed sizes, all values finite.
struct StoredLayer {
  v1::LayerSnapshot meta;
  std::vector<Tensor> tensors;
};

// The newest background checkpoint that could be used.
struct Newest {
  // Absent when there is none.
  std::optional<StoredLayer> layer;
  // One line for each newer file that was not used, and why.
  std::vector<std::string> skipped;
};

// A job checkpoint, complete or not.
struct JobCheckpoint {
  std::string id;
  // kNotFound while it is incomplete, kDataLoss when the manifest is damaged.
  absl::StatusOr<v1::CheckpointManifest> manifest;
};

// Thread safety: thread-safe. All calls block on the disk: none belongs under
// a lock. Every error names the file or folder and, when writing, the bytes.
//
// Errors of every call that writes:
//   kResourceExhausted  the disk is full, or a quota is.
//   kPermissionDenied   this process may not write there.
//   kDataLoss           any other failure of the disk.
//   kInvalidArgument    meta and tensors do not fit together, or a name is
//                       empty; a bug of the caller.
//   kFailedPrecondition further conditions, named at the call.
// After an error what was there before is still there.
class CheckpointStore {
 public:
  virtual ~CheckpointStore() = default;

  // Keeps a layer; then removes all but the newest of its background files
  // (the number is an option of the store). Returns the bytes written.
  //
  //   meta     `tensors` lists role and elements; checksums are filled in.
  //   tensors  one per entry of `meta.tensors`; read, not kept.
  virtual absl::StatusOr<int64_t> WriteBackground(
      const v1::LayerSnapshot& meta, const std::vector<Tensor>& tensors) = 0;

  // The newest background state of layer `layer` of this job and run: highest
  // (epoch, world version, closed_through) of the files that read well and
  // have this layer's shape and options. Never an error: what could not be
  // read is in `skipped`.
  virtual Newest ReadNewest(const v1::JobConfig& config, int layer) = 0;

  // Removes the background files of one run of a job that has finished or was
  // replaced. Idempotent. Job checkpoints stay.
  virtual absl::Status RemoveBackground(const std::string& job,
                                        const std::string& run_id) = 0;

  // Writes one layer of the job checkpoint `id`. Returns what the manifest has
  // to say of it.
  //
  // Errors:
  //   kInvalidArgument     `id` is not 1 to 64 of [A-Za-z0-9._-], or begins
  //                        with '.'.
  //   kFailedPrecondition  the checkpoint is complete already.
  virtual absl::StatusOr<v1::CheckpointFile> WriteJobLayer(
      const std::string& id, const v1::LayerSnapshot& meta,
      const std::vector<Tensor>& tensors) = 0;

  // Completes a job checkpoint. Idempotent: repeating an equal manifest is OK.
  //
  // Errors:
  //   kFailedPrecondition  a layer is missing or listed twice; a file is not
  //                        there, has another size, or holds another job,
  //                        layer, or a step after the cut; or the checkpoint is
  //                        complete with another manifest.
  virtual absl::Status CommitManifest(
      const v1::CheckpointManifest& manifest) = 0;

  // Reads layer `layer` of `config` from the complete job checkpoint `id`. The
  // run may be another one.
  //
  // Errors:
  //   kNotFound            no such checkpoint, or it is incomplete.
  //   kDataLoss            manifest or file is damaged.
  //   kFailedPrecondition  other layer table or options (the first difference
  //                        is named), or a format this version does not read.
  virtual absl::StatusOr<StoredLayer> ReadJobLayer(const v1::JobConfig& config,
                                                   int layer,
                                                   const std::string& id) = 0;

  // Errors:
  //   kNotFound, kDataLoss, kFailedPrecondition as ReadJobLayer().
  virtual absl::StatusOr<v1::CheckpointManifest> ReadManifest(
      const std::string& job, const std::string& id) = 0;

  // The job checkpoints of a job, by id.
  virtual absl::StatusOr<std::vector<JobCheckpoint>> List(
      const std::string& job) = 0;

  // Which of these servers do not keep their layers where this one does: one
  // line for each whose marker cannot be read. Empty: state recovery is shared.
  virtual std::vector<std::string> UnreadablePeers(
      const std::vector<v1::ServerAddress>& peers) = 0;
};

}  // namespace kronserve::checkpoint

#endif  // KRONSERVE_CHECKPOINT_STORE_H_
