#include "server/checkpoint_keeper.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/layer_snapshot.h"

namespace kronserve::server {
namespace {

constexpr int kThreads = 2;
// Somebody waits for a restore.
constexpr int64_t kRestoresFirst = -1;
constexpr absl::Duration kLookAgain = absl::Seconds(10);

absl::StatusOr<Restored> Unpack(checkpoint::StoredLayer stored,
                                const v1::JobConfig& config, int layer) {
  Restored restored;
  KRONSERVE_ASSIGN_OR_RETURN(
      restored.contents,
      UnpackLayer({std::move(stored.meta), std::move(stored.tensors)},
                  config.layers(layer), config.options()));
  return restored;
}

}  // namespace

absl::StatusOr<std::optional<Restored>> RestoreLayer(
    checkpoint::CheckpointStore& store, const v1::JobConfig& config,
    int layer) {
  checkpoint::Newest newest = store.ReadNewest(config, layer);
  const std::string& job_checkpoint = config.restore_checkpoint();
  // What was written before this world began is not what it starts from.
  const bool is_of_this_world =
      newest.layer.has_value() &&
      newest.layer->meta.world_version() >= config.world().version();
  if (newest.layer.has_value() &&
      (job_checkpoint.empty() || is_of_this_world)) {
    absl::StatusOr<Restored> restored =
        Unpack(*std::move(newest.layer), config, layer);
    if (restored.ok()) {
      restored->source = v1::RECOVERY_SOURCE_BACKGROUND_CHECKPOINT;
      restored->message = absl::StrJoin(newest.skipped, "; ");
      return *std::move(restored);
    }
    newest.skipped.push_back(std::string(restored.status().message()));
  }
  if (!job_checkpoint.empty()) {
    KRONSERVE_ASSIGN_OR_RETURN(
        checkpoint::StoredLayer stored,
        store.ReadJobLayer(config, layer, job_checkpoint));
    KRONSERVE_ASSIGN_OR_RETURN(Restored restored,
                               Unpack(std::move(stored), config, layer));
    restored.source = v1::RECOVERY_SOURCE_JOB_CHECKPOINT;
    restored.message = absl::StrJoin(newest.skipped, "; ");
    return restored;
  }
  if (newest.skipped.empty()) return std::nullopt;
  return absl::FailedPreconditionError(absl::StrJoin(newest.skipped, "; "));
}

CheckpointKeeper::CheckpointKeeper(
    std::unique_ptr<checkpoint::CheckpointStore> store)
    : store_(std::move(store)), pool_("checkpoints", kThreads) {}

void CheckpointKeeper::Restore(RestoreTask task, RestoreDone done) {
  pool_.Submit(
      [this, task = std::move(task), done = std::move(done)] {
        done(RestoreLayer(*store_, *task.config, task.key.layer));
      },
      kRestoresFirst);
}

void CheckpointKeeper::Write(CheckpointTask task, WriteDone done) {
  if (task.checkpoint.empty()) {
    const v1::LayerSnapshot& meta = task.contents.meta;
    MutexLock lock(&mu_);
    ++writing_[{meta.job(), meta.run_id()}].writes;
  }
  pool_.Submit([this, task = std::move(task), done = std::move(done)] {
    if (task.checkpoint.empty()) {
      WriteBackground(task.contents, done);
      return;
    }
    const LayerImage image = ShareLayer(task.contents);
    done(store_->WriteJobLayer(task.checkpoint, image.meta, image.tensors));
  });
}

void CheckpointKeeper::WriteBackground(const LayerContents& contents,
                                       const WriteDone& done) {
  const LayerImage image = ShareLayer(contents);
  const absl::Status status =
      store_->WriteBackground(image.meta, image.tensors).status();
  const RunKey run{image.meta.job(), image.meta.run_id()};
  if (EndWrite(run)) Remove(run);
  if (status.ok()) {
    done(v1::CheckpointFile());
  } else {
    done(status);
  }
}

bool CheckpointKeeper::EndWrite(const RunKey& run) {
  MutexLock lock(&mu_);
  const auto it = writing_.find(run);
  if (--it->second.writes > 0) return false;
  const bool forgotten = it->second.forgotten;
  writing_.erase(it);
  return forgotten;
}

void CheckpointKeeper::Forget(ForgetTask task) {
  RunKey run{std::move(task.job), std::move(task.run_id)};
  {
    MutexLock lock(&mu_);
    const auto it = writing_.find(run);
    if (it != writing_.end()) {
      it->second.forgotten = true;
      return;
    }
  }
  pool_.Submit([this, run = std::move(run)] { Remove(run); });
}

void CheckpointKeeper::Remove(const RunKey& run) {
  const absl::Status status = store_->RemoveBackground(run.first, run.second);
  if (status.ok()) return;
  Log(LogLevel::kWarning, "checkpoints of a finished job stay",
      {{"job", run.first}, {"fault", std::string(status.message())}});
}

void CheckpointKeeper::Commit(v1::CheckpointManifest manifest, Done done) {
  pool_.Submit([this, manifest = std::move(manifest), done = std::move(done)] {
    done(store_->CommitManifest(manifest));
  });
}

void CheckpointKeeper::SeePeers(std::vector<v1::ServerAddress> peers,
                                absl::Time now) {
  const std::string names = absl::StrJoin(
      peers, ",", [](std::string* out, const v1::ServerAddress& peer) {
        absl::StrAppend(out, peer.name(), "/", peer.incarnation());
      });
  {
    MutexLock lock(&mu_);
    if (looking_) return;
    if (names == looked_for_ && now - looked_ < kLookAgain) return;
    looking_ = true;
    looked_ = now;
    looked_for_ = names;
  }
  pool_.Submit([this, peers = std::move(peers)] {
    std::vector<std::string> unreadable = store_->UnreadablePeers(peers);
    MutexLock lock(&mu_);
    looking_ = false;
    unreadable_ = std::move(unreadable);
  });
}

void CheckpointKeeper::FillRecovery(v1::ServerHeartbeatRequest* request) const {
  MutexLock lock(&mu_);
  if (!unreadable_.has_value()) return;
  request->set_state_recovery(unreadable_->empty() ? v1::STATE_RECOVERY_SHARED
                                                   : v1::STATE_RECOVERY_NONE);
  request->set_state_recovery_message(absl::StrJoin(*unreadable_, "; "));
}

}  // namespace kronserve::server
