#include "tests/numerics/service_run.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "common/status_macros.h"
#include "linalg/backend.h"
#include "tests/mini_cluster.h"
#include "worker/session.h"
#include "worker/session_options.h"
#include "worker/training/batches.h"
#include "worker/training/gradient_step.h"
#include "worker/training/model.h"
#include "worker/training/optimizer.h"
#include "worker/training/random.h"
#include "worker/training/trainer.h"

namespace kronserve::numerics {
namespace {

using linalg::MatrixView;

constexpr uint64_t kSeed = 5;

Rows ToRows(linalg::ConstMatrixView<float> matrix) {
  Rows rows(matrix.rows);
  for (int64_t i = 0; i < matrix.rows; ++i) {
    rows[i].assign(matrix.data + i * matrix.cols,
                   matrix.data + (i + 1) * matrix.cols);
  }
  return rows;
}

std::vector<Rows> ToRows(const std::vector<MatrixView<float>>& matrices) {
  std::vector<Rows> rows;
  for (const auto& matrix : matrices) rows.push_back(ToRows(matrix));
  return rows;
}

v1::JobOptions Options(const RunOptions& run) {
  v1::JobOptions options = worker::SynchronousJobOptions();
  options.set_factor_update_steps(run.factor_update_steps);
  options.set_inv_update_steps(run.inv_update_steps);
  options.set_deterministic(true);
  return options;
}

// One rank's training loop.
class Rank {
 public:
  Rank(const RunOptions& options, const worker::Dataset& dataset,
       worker::Session* session)
      : options_(options), dataset_(dataset), session_(session) {}

  absl::StatusOr<Trace> Run() {
    KRONSERVE_ASSIGN_OR_RETURN(
        auto tools, linalg::CreateLinearAlgebra<float>(linalg::Device::kCpu));
    const std::vector<int64_t> sizes(Sizes().begin(), Sizes().end());
    auto model = worker::CreateMlp<float>(tools.kernels.get(), sizes,
                                          worker::ActivationKind::kTanh, kSeed);
    worker::TrainerParts parts;
    parts.dataset = &dataset_;
    parts.model = &model;
    parts.group = &session_->job_group();
    parts.session = session_;
    worker::GradientStep gradient_step(parts);
    auto sgd = worker::CreateSgd<float>({options_.momentum, 0.0});
    worker::BatchSchedule batches(dataset_.train.rows(), options_.batch, kSeed);
    Trace trace;
    for (int64_t step = 0; step < options_.steps; ++step) {
      const int64_t* rows = batches.Rows(step);
      KRONSERVE_RETURN_IF_ERROR(gradient_step.Compute(
          step, rows, options_.batch, options_.micro_batches));
      KRONSERVE_RETURN_IF_ERROR(gradient_step.Average());
      KRONSERVE_RETURN_IF_ERROR(
          TakeStep(step, rows, &model, gradient_step.gradients(), &trace));
      sgd->Step(options_.lr, model.parameters(), gradient_step.gradients());
    }
    trace.final_weights = ToRows(model.parameters());
    return trace;
  }

 private:
  absl::Status TakeStep(int64_t step, const int64_t* rows,
                        worker::Model<float>* model,
                        const std::vector<MatrixView<float>>& gradients,
                        Trace* trace) {
    StepTrace seen;
    seen.weights = ToRows(model->parameters());
    seen.gradients = ToRows(gradients);
    CopyBatch(rows, &seen);
    worker::StepSettings settings;
    settings.lr = options_.lr;
    settings.damping = options_.damping;
    settings.factor_decay = options_.factor_decay;
    settings.kl_clip = options_.kl_clip;
    KRONSERVE_ASSIGN_OR_RETURN(const auto result,
                               session_->Step(step, settings, gradients));
    if (result.fallbacks > 0) {
      return absl::InternalError(
          absl::StrCat("step ", step, ": ", result.fallbacks,
                       " layers fell back: ", result.layers[0].message));
    }
    seen.replaced = ToRows(gradients);
    trace->steps.push_back(std::move(seen));
    for (const auto& gradient : gradients) {
      const uint64_t parts[] = {
          trace->hash,
          Checksum(gradient.data, gradient.size() * sizeof(float))};
      trace->hash = Checksum(parts, sizeof(parts));
    }
    return absl::OkStatus();
  }

  void CopyBatch(const int64_t* rows, StepTrace* seen) {
    linalg::Matrix<float> inputs(options_.batch, dataset_.image_size());
    std::vector<uint8_t> labels(options_.batch);
    worker::CopyRows(dataset_, dataset_.train, rows, inputs.view(),
                     labels.data());
    seen->inputs = ToRows(std::as_const(inputs).view());
    seen->labels.assign(labels.begin(), labels.end());
  }

  const RunOptions& options_;
  const worker::Dataset& dataset_;
  worker::Session* const session_;
};

}  // namespace

worker::Dataset ClusteredPoints() {
  worker::Dataset dataset;
  dataset.name = "clustered points";
  dataset.height = 1;
  dataset.width = Sizes().front();
  dataset.classes = Sizes().back();
  worker::RandomStream random(11, 0);
  for (int row = 0; row < 240; ++row) {
    const int label = row % int(dataset.classes);
    dataset.train.labels.push_back(static_cast<uint8_t>(label));
    for (int i = 0; i < dataset.width; ++i) {
      const double centre = (i + label) % 3 * 60 + 60;
      const double value = centre + 40 * random.Normal();
      dataset.train.pixels.push_back(
          static_cast<uint8_t>(std::min(255.0, std::max(0.0, value))));
    }
  }
  dataset.test = dataset.train;
  dataset.mean = 120;
  dataset.stddev = 60;
  return dataset;
}

absl::StatusOr<Trace> TrainThroughService(const RunOptions& options) {
  KRONSERVE_ASSIGN_OR_RETURN(auto cluster,
                             MiniCluster::Start({options.servers}));
  const worker::Dataset dataset = ClusteredPoints();
  JobSpec job;
  job.ranks = options.ranks;
  job.options = Options(options);
  for (size_t l = 0; l + 1 < Sizes().size(); ++l) {
    job.layers.push_back(
        {absl::StrCat("fc", l + 1), Sizes()[l + 1], Sizes()[l] + 1, true});
  }
  std::vector<Trace> traces(options.ranks);
  KRONSERVE_RETURN_IF_ERROR(
      cluster->Run(job, [&](int rank, worker::Session& session) {
        auto trace = Rank(options, dataset, &session).Run();
        if (!trace.ok()) return trace.status();
        traces[rank] = *std::move(trace);
        return absl::OkStatus();
      }));
  for (const Trace& trace : traces) {
    if (trace.hash != traces[0].hash) {
      return absl::InternalError("the ranks applied different bits");
    }
  }
  return traces[0];
}

}  // namespace kronserve::numerics
