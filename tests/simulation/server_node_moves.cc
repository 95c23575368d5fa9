// ServerNode: layers go, come, and are kept on the disk.

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/server_node.h"

namespace kronserve::simulation {
namespace {

constexpr absl::Duration kTransferTimeout = absl::Seconds(5);
// A disk that is shared and slow.
constexpr absl::Duration kSlowestDisk = absl::Milliseconds(200);

}  // namespace

void ServerNode::RunTransfer(server::TransferTask task) {
  const ContributionCheck::Lineage lineage =
      env_->checks.contributions.OnStateLeaves(*this, task.key.layer,
                                               task.contents.meta);
  server::LayerImage image = server::PackLayer(task.contents);
  v1::TransferLayerHeader header = std::move(task.header);
  *header.mutable_snapshot() = image.meta;
  env_->Say(process()->name(), [&] {
    return absl::StrCat("-> ", task.target.name(), " layer ", task.key.layer,
                        " in epoch ", header.epoch(), ", closed through ",
                        image.meta.closed_through());
  });
  const auto done = [this, key = task.key,
                     attempt = task.attempt](const absl::Status& status) {
    Input([&](server::Effects* effects) {
      core_.FinishTransfer(key, attempt, status, env_->now(), effects);
    });
  };
  env_->network.Begin(
      process(), task.target.name(), kTransferTimeout,
      [header, image, lineage, done](Endpoint* endpoint, const CallPtr& call) {
        static_cast<ServerNode*>(endpoint)->Transfer(call, header, image,
                                                     lineage, done);
      },
      done);
}

void ServerNode::Transfer(
    const CallPtr& call, const v1::TransferLayerHeader& header,
    const server::LayerImage& image, const ContributionCheck::Lineage& lineage,
    const std::function<void(const absl::Status&)>& done) {
  absl::StatusOr<server::TransferTicket> ticket;
  Input([&](server::Effects* effects) {
    ticket = core_.BeginTransfer(header, effects);
  });
  if (!ticket.ok()) {
    return env_->network.End(
        call, [done, status = ticket.status()] { done(status); });
  }
  const auto used = std::make_shared<bool>(false);
  call->on_gone = [this, used, ticket = *ticket] {
    if (!std::exchange(*used, true)) core_.AbandonTransfer(ticket);
  };
  env_->queue.After(TaskTime(1), process(), [=] {
    if (std::exchange(*used, true)) return;
    absl::StatusOr<server::LayerContents> contents =
        absl::FailedPreconditionError("a repeat: not needed");
    if (!ticket->installed) {
      contents = server::UnpackLayer(image, ticket->layer, ticket->options);
    }
    absl::Status status;
    Input([&](server::Effects* effects) {
      const int64_t before = core_.Status().counters().layers_received();
      status =
          core_.InstallLayer(*ticket, header, contents, env_->now(), effects)
              .status();
      if (core_.Status().counters().layers_received() == before) return;
      env_->checks.contributions.OnStateCame(
          *this, header.snapshot().layer_index(), lineage,
          /*from_server=*/true);
    });
    env_->Say(process()->name(), [&] {
      return absl::StrCat("<- ", header.source(), " layer ",
                          header.snapshot().layer_index(), ": ",
                          status.ToString());
    });
    env_->network.End(call, [done, status] { done(status); });
  });
}

void ServerNode::WriteCheckpoint(
    const CallPtr& call, const v1::WriteCheckpointRequest& request,
    const std::function<
        void(const absl::StatusOr<v1::WriteCheckpointResponse>&)>& done) {
  absl::StatusOr<v1::WriteCheckpointResponse> response;
  Input([&](server::Effects* effects) {
    response = core_.WriteCheckpoint(request, env_->now(), effects);
  });
  env_->network.End(call, [done, response] { done(response); });
}

void ServerNode::CommitCheckpoint(
    const CallPtr& call, const v1::CommitCheckpointRequest& request,
    const std::function<void(const absl::Status&)>& done) {
  absl::Status status;
  Input(
      [&](server::Effects*) { status = core_.BeginCommit(request).status(); });
  env_->network.End(call, [done, status] { done(status); });
}

void ServerNode::RunRestore(server::RestoreTask task) {
  const absl::Duration takes =
      env_->random.Between(absl::Milliseconds(1), kSlowestDisk);
  env_->queue.After(takes, process(),
                    [this, task = std::move(task)] { Restore(task); });
}

void ServerNode::Restore(const server::RestoreTask& task) {
  absl::StatusOr<std::optional<server::Restored>> result = std::nullopt;
  const int layer = task.key.layer;
  const SimulatedCheckpoints::File* file = checkpoints_->Newest(layer);
  if (file != nullptr) {
    server::Restored restored;
    auto contents = server::UnpackLayer(file->image, task.config->layers(layer),
                                        task.config->options());
    env_->checks.Require(contents.ok(), [&] {
      return absl::StrCat("checkpoint of layer ", layer, ": ",
                          contents.status().ToString());
    });
    if (!contents.ok()) return;
    restored.contents = *std::move(contents);
    restored.source = v1::RECOVERY_SOURCE_BACKGROUND_CHECKPOINT;
    result = std::optional<server::Restored>(std::move(restored));
  }
  Input([&](server::Effects* effects) {
    const int64_t before = core_.Status().counters().layers_restored();
    core_.FinishRestore(task.key, std::move(result), env_->now(), effects);
    if (core_.Status().counters().layers_restored() == before) return;
    env_->checks.contributions.OnStateCame(*this, layer, file->lineage,
                                           /*from_server=*/false);
    env_->Say(process()->name(), [&] {
      return absl::StrCat("restores layer ", layer, " of epoch ",
                          file->image.meta.epoch(), ", closed through ",
                          file->image.meta.closed_through());
    });
  });
}

void ServerNode::RunCheckpoint(const server::CheckpointTask& task) {
  SimulatedCheckpoints::File file;
  file.image = server::PackLayer(task.contents);
  file.lineage = env_->checks.contributions.OnStateLeaves(*this, task.key.layer,
                                                          task.contents.meta);
  const absl::Duration takes =
      env_->random.Between(absl::Milliseconds(1), kSlowestDisk);
  env_->queue.After(
      takes, process(), [this, key = task.key, id = task.checkpoint, file] {
        absl::StatusOr<v1::CheckpointFile> result = v1::CheckpointFile();
        if (env_->random.Chance(0.02)) {
          result = absl::ResourceExhaustedError("disk full");
        } else {
          checkpoints_->Add(key.layer, file);
        }
        Input([&](server::Effects* effects) {
          core_.FinishCheckpoint(key, id, result, env_->now(), effects);
        });
      });
}

}  // namespace kronserve::simulation
