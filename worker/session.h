// The training API: three calls in a training loop.
//
//   KRONSERVE_ASSIGN_OR_RETURN(auto session, Session::Join(options, layers,
//                                                          groups));
//   for (step = session->start_step(); ...; ++step) {
//     forward, backward;
//     if (session->NeedsStatistics(step))
//       for each layer: session->AccumulateLinear(layer, a, g, loss_rows);
//     average the gradients over session->job_group();
//     KRONSERVE_ASSIGN_OR_RETURN(auto result, session->Step(step, settings,
//                                                           gradients));
//     optimizer step with the gradients, now preconditioned;
//   }
//
// Layer: worker. May include client/ and lower.
// docs/architecture.md has the life of a step.

#ifndef KRONSERVE_WORKER_SESSION_H_
#define KRONSERVE_WORKER_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "curvature/layer_shape.h"
#include "kronserve/v1/job.pb.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "linalg/matrix_view.h"
#include "worker/collective/communicator.h"

namespace kronserve::worker {

struct SessionOptions {
  std::string scheduler;  // host:port
  std::string job;
  std::string run_id = "run";
  int64_t restart_count = 0;
  int rank = 0;
  int world_size = 1;
  // Fewest ranks to train with: then `rank` is an upper bound, and job_group()
  // says which rank of how many this is. 0: world_size.
  int min_ranks = 0;
  // No parameters yet: next_step does not count beside ranks that have some.
  bool fresh = false;
  std::string node = "node0";  // Ranks with one name share a node.
  uint64_t incarnation = 0;    // Of this process; 0: drawn at Join().
  int64_t next_step = 0;       // First step this process would train.
  // Job checkpoint of the step before next_step that the layers start from;
  // empty: none. Equal on all ranks.
  std::string restore_checkpoint;
  std::string device = "auto";  // For local factors: linalg::ResolveDevice.
  absl::Duration join_timeout = absl::Seconds(60);
  // Equal on all ranks; DefaultJobOptions() where nothing was asked for.
  v1::JobOptions job_options;
};

// The shipped defaults; docs/tuning.md has the tables behind them.
v1::JobOptions DefaultJobOptions();

// What may change from step to step; equal on all ranks.
struct StepSettings {
  double lr = 0.1;                        // Enters the KL clip only.
  std::optional<double> kl_clip = 0.001;  // Absent: no clipping.
  double damping = 0.03;
  double factor_decay = 0.95;  // Weight on the OLD average.
  // Set when this rank wants the step void (overflow, skipped): no statistics
  // are merged and no layer is preconditioned, on any rank.
  std::string void_reason;
};

struct LayerReport {
  bool preconditioned = false;
  v1::FallbackReason reason = v1::FALLBACK_REASON_UNSPECIFIED;
  std::string message;  // This rank's words for the reason, if it has any.
  int64_t version = 0;  // Merged rounds behind the inverse.
  int64_t age = 0;      // Step minus step of the factors behind it.
  v1::RefreshRung rung = v1::REFRESH_RUNG_UNSPECIFIED;
};

struct StepResult {
  bool voided = false;
  double nu = 1;                    // KL factor of this step.
  std::vector<LayerReport> layers;  // Same outcomes on every rank.
  int fallbacks = 0;                // Layers that were not preconditioned.
  absl::Duration waited;            // Inside Step() for service and ranks.
  uint64_t epoch = 0;               // Assignment used.
};

// One rank's part in one job.
//
// Thread safety: none; one thread drives it. Heartbeats run on a thread of
//                their own.
// Lifetime:      `groups` is used in Join() only. The destructor leaves the
//                job (it does not finish it).
class Session {
 public:
  // Registers the rank, waits until the job is ready, and connects the ranks.
  //
  // Errors:
  //   kInvalidArgument     options or layers are malformed; names all faults.
  //   kAlreadyExists       the job lives with other layers, or the rank is
  //                        taken by a live process.
  //   kResourceExhausted   the servers lack memory; names both numbers.
  //   kDeadlineExceeded    not ready within join_timeout; names what is
  //                        missing.
  //   kUnavailable         the scheduler cannot be reached.
  //   kAborted             the job is at a higher restart count, or a rank was
  //                        lost while the ranks connected: join again with a
  //                        higher one.
  static absl::StatusOr<std::unique_ptr<Session>> Join(
      const SessionOptions& options,
      const std::vector<curvature::LayerShape>& layers,
      const CommunicatorFactory& groups);

  virtual ~Session() = default;

  // All ranks of the job; the trainer averages its gradients over it.
  virtual Communicator& job_group() = 0;
  virtual int64_t start_step() const = 0;
  // Of the world. Whoever wants another world claims a higher one.
  virtual int64_t restart_count() const = 0;
  virtual uint64_t plan_hash() const = 0;

  // True when Step(step) wants this rank's statistics of `layer`.
  virtual bool NeedsStatistics(int64_t step, int layer) const = 0;

  // Adds one micro-batch's statistics; called any number of times before
  // Step(). A layer without a call contributes "unused".
  //
  //   inputs          [rows, d_in without bias].
  //   hook_gradients  [rows, d_out], of the mean loss.
  //   loss_rows       rows the loss was averaged over, >= 1.
  //
  // Errors:
  //   kInvalidArgument  unknown layer or shapes that do not fit it.
  virtual absl::Status AccumulateLinear(
      int layer, linalg::ConstMatrixView<float> inputs,
      linalg::ConstMatrixView<float> hook_gradients, int64_t loss_rows) = 0;

  // As AccumulateLinear() for a convolution.
  //
  //   images          [batch, in_channels * in_height * in_width].
  //   hook_gradients  [batch, d_out * out_height * out_width].
  virtual absl::Status AccumulateConv(
      int layer, const curvature::ConvGeometry& geometry,
      linalg::ConstMatrixView<float> images,
      linalg::ConstMatrixView<float> hook_gradients, int64_t loss_rows) = 0;

  // Exchanges the step with the service and replaces `gradients`.
  //
  //   step       grows by 1 from start_step().
  //   gradients  [layers] of [d_out, d_in], already averaged over the ranks;
  //              on return V scaled by the KL factor, or the fallback. The
  //              same bytes on every rank.
  //
  // Blocks at most the job's step budget for the service, and the group's
  // timeout for the other ranks. A layer that could not be preconditioned is
  // not an error: see StepResult.
  //
  // Errors:
  //   kInvalidArgument  wrong step or shapes; nothing was sent.
  //   kUnavailable, kDeadlineExceeded   the job group broke, or the scheduler
  //                     says that the world was replaced: the job must re-join.
  virtual absl::StatusOr<StepResult> Step(
      int64_t step, const StepSettings& settings,
      const std::vector<linalg::MatrixView<float>>& gradients) = 0;

  // Ends the job for all ranks. Idempotent.
  virtual absl::Status Finish() = 0;
};

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_SESSION_H_
