// A core with its executor and a clock moved by hand: whole calls in one line.

#ifndef KRONSERVE_SERVER_TESTING_CORE_DRIVER_H_
#define KRONSERVE_SERVER_TESTING_CORE_DRIVER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/server_core.h"
#include "server/tasks.h"
#include "server/testing/inline_executor.h"
#include "server/testing/test_job.h"

namespace kronserve::server::testing {

inline CoreOptions DefaultCoreOptions(const std::string& name = kServerName) {
  CoreOptions options;
  options.name = name;
  options.incarnation = IncarnationOfServer(name);
  options.memory_limit_bytes = int64_t{1} << 30;
  options.staging_limit_bytes = int64_t{1} << 24;
  return options;
}

class CoreDriver {
 public:
  explicit CoreDriver(CoreOptions options = DefaultCoreOptions())
      : core(std::move(options)), executor(&core) {}

  absl::Status Configure(const v1::ConfigureJobRequest& request) {
    Effects effects;
    const auto response = core.ConfigureJob(request, now, &effects);
    executor.Run(std::move(effects), now);
    return response.status();
  }

  absl::Status Drop(int64_t world_version, uint64_t term = 1,
                    bool finished = true) {
    v1::DropJobRequest request;
    request.set_term(term);
    request.set_job("job");
    request.set_world_version(world_version);
    request.set_finished(finished);
    Effects effects;
    absl::Status status = core.DropJob(request, &effects);
    executor.Run(std::move(effects), now);
    return status;
  }

  absl::StatusOr<v1::PushFactorsResponse> Push(
      const v1::PushFactorsHeader& header, const std::vector<Piece>& pieces) {
    Effects effects;
    auto ticket = core.BeginPush(header, now, &effects);
    if (!ticket.ok()) {
      executor.Run(std::move(effects), now);
      return ticket.status();
    }
    std::vector<CheckedTensor> tensors;
    for (size_t i = 0; i < pieces.size(); ++i) {
      CheckedTensor checked;
      if (pieces[i].tensor != nullptr && ticket->slots[i].keep) {
        checked.tensor = pieces[i].tensor;
        checked.status =
            CheckTensor(*checked.tensor, header.items(i).checksum());
      }
      tensors.push_back(std::move(checked));
    }
    auto response = core.StagePush(*ticket, header, tensors, now, &effects);
    executor.Run(std::move(effects), now);
    return response;
  }

  absl::StatusOr<v1::PushFactorsResponse> Push(
      int rank, int64_t step, const std::vector<Piece>& pieces) {
    return Push(MakePushHeader(rank, step, pieces), pieces);
  }

  // Ends a step with gradients, all of which arrive.
  absl::StatusOr<StepTicket> End(const v1::PreconditionHeader& header,
                                 const std::vector<Tensor>& gradients = {},
                                 absl::Duration timeout = absl::Seconds(1)) {
    Effects effects;
    auto ticket = core.EndStep(header, now, now + timeout, &effects);
    executor.Run(std::move(effects), now);
    for (size_t i = 0; ticket.ok() && i < gradients.size(); ++i) {
      if (!ticket->slots[i].keep) continue;
      Effects more;
      core.AddGradient(ticket->requests[i],
                       {gradients[i],
                        CheckTensor(*gradients[i], header.items(i).checksum())},
                       now, &more);
      executor.Run(std::move(more), now);
    }
    return ticket;
  }

  static v1::PreconditionHeader MakeEnd(int rank, int64_t step) {
    v1::PreconditionHeader header;
    *header.mutable_call() = MakeCall(rank, step);
    header.set_end(v1::STEP_END_COMMIT);
    return header;
  }

  absl::Status Commit(int rank, int64_t step) {
    return End(MakeEnd(rank, step)).status();
  }

  absl::Status Void(int rank, int64_t step, const std::string& reason) {
    v1::PreconditionHeader header = MakeEnd(rank, step);
    header.set_end(v1::STEP_END_VOID);
    header.set_void_reason(reason);
    return End(header).status();
  }

  struct Asked {
    int layer;
    int64_t rows;
    int64_t cols;
    const Tensor& values;
  };

  // Commits `step` and asks for V of one layer; returns the request.
  uint64_t Ask(int rank, int64_t step, const Asked& asked,
               absl::Duration timeout = absl::Seconds(1)) {
    v1::PreconditionHeader header = MakeEnd(rank, step);
    v1::GradientItem* item = header.add_items();
    item->set_layer(asked.layer);
    item->set_rows(asked.rows);
    item->set_cols(asked.cols);
    item->set_checksum(ChecksumOf(asked.values));
    const auto ticket = End(header, {asked.values}, timeout);
    KRONSERVE_CHECK(ticket.ok(), std::string(ticket.status().message()));
    return ticket->requests[0];
  }

  // A whole TransferLayer call that brings what `task` sends.
  absl::Status Receive(const TransferTask& task) {
    LayerImage image = PackLayer(task.contents);
    v1::TransferLayerHeader header = task.header;
    *header.mutable_snapshot() = image.meta;
    Effects effects;
    auto ticket = core.BeginTransfer(header, &effects);
    if (!ticket.ok()) {
      executor.Run(std::move(effects), now);
      return ticket.status();
    }
    absl::StatusOr<LayerContents> contents = LayerContents();
    if (!ticket->installed) {
      contents = UnpackLayer(image, ticket->layer, ticket->options);
    }
    const auto response =
        core.InstallLayer(*ticket, header, std::move(contents), now, &effects);
    executor.Run(std::move(effects), now);
    return response.status();
  }

  void FinishTransfer(const TransferTask& task, const absl::Status& status) {
    Effects effects;
    core.FinishTransfer(task.key, task.attempt, status, now, &effects);
    executor.Run(std::move(effects), now);
  }

  void FinishRestore(const RestoreTask& task,
                     absl::StatusOr<std::optional<Restored>> result) {
    Effects effects;
    core.FinishRestore(task.key, std::move(result), now, &effects);
    executor.Run(std::move(effects), now);
  }

  void FinishCheckpoint(const CheckpointTask& task,
                        const absl::StatusOr<v1::CheckpointFile>& result) {
    Effects effects;
    core.FinishCheckpoint(task.key, task.checkpoint, result, now, &effects);
    executor.Run(std::move(effects), now);
  }

  void SeeProgress(int64_t step) {
    google::protobuf::RepeatedPtrField<v1::JobProgress> jobs;
    jobs.Add()->set_job("job");
    jobs[0].set_world_version(1);
    jobs[0].set_step(step);
    Effects effects;
    core.SeeProgress(jobs, now, &effects);
    executor.Run(std::move(effects), now);
  }

  // "Owned", "awaited" or "leaving"; "none" when it is not here.
  std::string PhaseOf(const std::string& layer) const {
    const v1::GetServerStatusResponse all = core.Status();
    for (const v1::LayerStatus& status : all.layers()) {
      if (status.layer() != layer) continue;
      if (status.phase() == v1::LAYER_PHASE_OWNED) return "owned";
      return status.phase() == v1::LAYER_PHASE_AWAITED ? "awaited" : "leaving";
    }
    return "none";
  }

  void Advance(absl::Duration by) {
    now += by;
    Effects effects;
    core.Tick(now, &effects);
    executor.Run(std::move(effects), now);
  }

  v1::ServerCounters counters() const { return core.Status().counters(); }

  absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  ServerCore core;
  InlineExecutor executor;
};

}  // namespace kronserve::server::testing

#endif  // KRONSERVE_SERVER_TESTING_CORE_DRIVER_H_
