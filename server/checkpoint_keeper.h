// Does what a core wants of a checkpoint store, on threads of its own.
//
// Layer: server. May include checkpoint/, curvature/, placement/, linalg/,
// proto/, common/.
// A slow or hung disk holds up nothing else of the server.

#ifndef KRONSERVE_SERVER_CHECKPOINT_KEEPER_H_
#define KRONSERVE_SERVER_CHECKPOINT_KEEPER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "checkpoint/store.h"
#include "common/mutex.h"
#include "common/task_pool.h"
#include "server/effects.h"

namespace kronserve::server {

// The newest state of a layer: its background checkpoint, or the job
// checkpoint that its world starts from when nothing newer was written since.
// Absent when there is none.
//
// Errors:
//   kFailedPrecondition  there are files, but none could be used: names each
//                        and why.
//   as CheckpointStore::ReadJobLayer()
absl::StatusOr<std::optional<Restored>> RestoreLayer(
    checkpoint::CheckpointStore& store, const v1::JobConfig& config, int layer);

// Thread safety: thread-safe. No method waits for the disk.
// Lifetime:      the destructor runs what is queued; every `done` is called
//                once, on a thread of the keeper.
class CheckpointKeeper {
 public:
  using RestoreDone =
      std::function<void(absl::StatusOr<std::optional<Restored>>)>;
  using WriteDone = std::function<void(absl::StatusOr<v1::CheckpointFile>)>;
  using Done = std::function<void(const absl::Status&)>;

  explicit CheckpointKeeper(std::unique_ptr<checkpoint::CheckpointStore> store);

  void Restore(RestoreTask task, RestoreDone done);
  // A background checkpoint is answered with an empty file.
  void Write(CheckpointTask task, WriteDone done) ABSL_LOCKS_EXCLUDED(mu_);
  // Removes also what is still to be written of that run by now.
  void Forget(ForgetTask task) ABSL_LOCKS_EXCLUDED(mu_);
  void Commit(v1::CheckpointManifest manifest, Done done);

  // These are the other servers now: looks for their markers from time to
  // time.
  void SeePeers(std::vector<v1::ServerAddress> peers, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mu_);
  // What the last look found; UNSPECIFIED before the first.
  void FillRecovery(v1::ServerHeartbeatRequest* request) const
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // A run of which background checkpoints are queued or being written.
  struct Writing {
    int64_t writes = 0;
    bool forgotten = false;  // The last of them takes all files along.
  };
  using RunKey = std::pair<std::string, std::string>;  // Job and run id.

  void WriteBackground(const LayerContents& contents, const WriteDone& done)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Whether that was the last write of a run that is forgotten.
  bool EndWrite(const RunKey& run) ABSL_LOCKS_EXCLUDED(mu_);
  void Remove(const RunKey& run);

  const std::unique_ptr<checkpoint::CheckpointStore> store_;

  mutable Mutex mu_;
  std::map<RunKey, Writing> writing_ ABSL_GUARDED_BY(mu_);
  bool looking_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time looked_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::string looked_for_ ABSL_GUARDED_BY(mu_);  // Names of the peers.
  std::optional<std::vector<std::string>> unreadable_ ABSL_GUARDED_BY(mu_);

  TaskPool pool_;  // Last: its tasks use the members above.
};

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_CHECKPOINT_KEEPER_H_
