#include "worker/worker_run.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "client/scheduler_api.h"
#include "common/incarnation.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "linalg/backend.h"
#include "worker/collective/gloo/factory.h"
#include "worker/job_checkpoints.h"
#include "worker/training/dataset.h"
#include "worker/training/model.h"
#include "worker/training/optimizer.h"
#include "worker/training/reporter.h"
#include "worker/worlds.h"

namespace kronserve::worker {
namespace {

Model<float> CreateModel(const WorkerOptions& options, const Dataset& dataset,
                         linalg::DenseKernels<float>* kernels) {
  const uint64_t seed = static_cast<uint64_t>(options.seed);
  if (options.model == "convnet") {
    const std::vector<int64_t> channels = ConvChannels(options);
    ConvnetShape shape;
    shape.channels = dataset.channels;
    shape.height = dataset.height;
    shape.width = dataset.width;
    shape.conv1 = channels[0];
    shape.conv2 = channels[1];
    shape.classes = dataset.classes;
    return CreateConvnet(kernels, shape, seed);
  }
  std::vector<int64_t> sizes = HiddenSizes(options);
  sizes.insert(sizes.begin(), dataset.image_size());
  sizes.push_back(dataset.classes);
  return CreateMlp(kernels, sizes,
                   options.activation == "tanh" ? ActivationKind::kTanh
                                                : ActivationKind::kRelu,
                   seed);
}

std::unique_ptr<Optimizer<float>> CreateOptimizer(
    const WorkerOptions& options) {
  if (options.optimizer == "adam") {
    AdamOptions adam;
    adam.beta1 = options.beta1;
    adam.weight_decay = options.weight_decay;
    return CreateAdam<float>(adam);
  }
  return CreateSgd<float>({options.momentum, options.weight_decay});
}

ProgressStyle StyleOf(const WorkerOptions& options) {
  if (options.progress == "never") return ProgressStyle::kNone;
  const bool bar = options.progress == "always" || isatty(STDERR_FILENO) == 1;
  return bar ? ProgressStyle::kBar : ProgressStyle::kLines;
}

// Null on other ranks than 0.
absl::StatusOr<std::unique_ptr<Reporter>> CreateReporter(
    const WorkerOptions& options, const Dataset& dataset) {
  if (options.rank != 0) return nullptr;
  ReporterOptions reporter;
  reporter.events = options.events;
  reporter.progress = StyleOf(options);
  reporter.steps_per_epoch =
      std::max<int64_t>(1, dataset.train.rows() / options.batch);
  reporter.total_steps = options.epochs * reporter.steps_per_epoch;
  if (options.max_steps > 0) {
    reporter.total_steps = std::min(reporter.total_steps, options.max_steps);
  }
  return Reporter::Create(reporter);
}

// Gloo, with the timeout of the options instead of the session's.
CommunicatorFactory GroupsOf(const WorkerOptions& options) {
  GlooOptions gloo;
  gloo.host = options.collective_host;
  return
      [create = CreateGlooFactory(gloo), timeout = CollectiveTimeout(options)](
          GroupSpec spec, Rendezvous* rendezvous) {
        spec.timeout = timeout;
        return create(spec, rendezvous);
      };
}

// How long the end of a run waits for a checkpoint that is being written.
constexpr absl::Duration kLastCheckpoint = absl::Seconds(10);

// Passes everything on, and lets job checkpoints be taken after the steps.
class CheckpointingObserver final : public TrainingObserver {
 public:
  CheckpointingObserver(TrainingObserver* next, JobCheckpoints* checkpoints,
                        TrainingStateParts state)
      : next_(next), checkpoints_(checkpoints), state_(std::move(state)) {}

  void OnStep(const StepEvent& event) override {
    next_->OnStep(event);
    checkpoints_->AfterStep(event.step, state_);
  }
  void OnEval(const EvalEvent& event) override { next_->OnEval(event); }
  void OnFallback(const FallbackEvent& event) override {
    next_->OnFallback(event);
  }
  void OnWorld(const WorldEvent& event) override { next_->OnWorld(event); }

 private:
  TrainingObserver* const next_;
  JobCheckpoints* const checkpoints_;
  const TrainingStateParts state_;
};

absl::StatusOr<TrainingSummary> TrainInJob(const WorkerOptions& options,
                                           TrainerParts trainer,
                                           StopWatcher* stop_watcher) {
  Log(LogLevel::kInfo, "waiting for the job",
      {{"scheduler", options.scheduler}, {"ranks", options.world_size}});
  WorldsOptions worlds;
  worlds.session = ToSessionOptions(options);
  worlds.trainer = ToTrainerOptions(options);
  worlds.elastic = options.elastic;
  worlds.max_restarts = options.max_restarts;
  worlds.session.incarnation = DrawIncarnation();
  const TrainingStateParts state{trainer.model->parameters(),
                                 trainer.optimizer};
  if (!options.resume.empty()) {
    KRONSERVE_ASSIGN_OR_RETURN(
        worlds.session.next_step,
        ReadTrainerFile(
            TrainerFile(options.checkpoint_dir, options.job, options.resume),
            state));
  }
  std::unique_ptr<JobCheckpoints> checkpoints;
  std::unique_ptr<TrainingObserver> observer;
  if (options.checkpoint_every > 0 && trainer.observer != nullptr) {
    JobCheckpoints::Options every;
    every.job = options.job;
    every.directory = options.checkpoint_dir;
    every.every = options.checkpoint_every;
    every.incarnation = worlds.session.incarnation;
    checkpoints = std::make_unique<JobCheckpoints>(
        every, client::CreateGrpcSchedulerApi(options.scheduler));
    observer = std::make_unique<CheckpointingObserver>(
        trainer.observer, checkpoints.get(), state);
    trainer.observer = observer.get();
  }
  WorldsParts parts;
  parts.trainer = trainer;
  if (checkpoints != nullptr) {
    parts.before_finish = [&] { checkpoints->WaitUntilIdle(kLastCheckpoint); };
  }
  parts.stop_watcher = stop_watcher;
  std::vector<curvature::LayerShape> layers;
  if (trainer.precondition) layers = trainer.model->shapes();
  parts.join = [&, groups = GroupsOf(options)](const SessionOptions& session) {
    return Session::Join(session, layers, groups);
  };
  return TrainInWorlds(worlds, parts);
}

absl::StatusOr<TrainingSummary> TrainAlone(const WorkerOptions& options,
                                           const TrainerParts& trainer,
                                           StopWatcher* stop_watcher) {
  stop_watcher->BeginTraining(nullptr);
  auto summary = Train(ToTrainerOptions(options), trainer);
  stop_watcher->EndTraining();
  return summary;
}

}  // namespace

absl::StatusOr<TrainingSummary> RunWorker(const WorkerOptions& options,
                                          StopWatcher* stop_watcher) {
  KRONSERVE_ASSIGN_OR_RETURN(const linalg::Device device,
                             linalg::ResolveDevice(options.device));
  KRONSERVE_ASSIGN_OR_RETURN(auto tools,
                             linalg::CreateLinearAlgebra<float>(device));
  KRONSERVE_ASSIGN_OR_RETURN(const Dataset dataset,
                             LoadDataset(options.dataset, options.data_dir));
  KRONSERVE_ASSIGN_OR_RETURN(const auto reporter,
                             CreateReporter(options, dataset));
  Model<float> model = CreateModel(options, dataset, tools.kernels.get());
  const auto optimizer = CreateOptimizer(options);

  TrainerParts parts;
  parts.dataset = &dataset;
  parts.model = &model;
  parts.optimizer = optimizer.get();
  parts.observer = reporter.get();
  parts.stop = &stop_watcher->stop();
  parts.precondition = options.optimizer == "kfac";
  auto summary = UsesJob(options) ? TrainInJob(options, parts, stop_watcher)
                                  : TrainAlone(options, parts, stop_watcher);
  KRONSERVE_RETURN_IF_ERROR(summary.status());
  if (reporter != nullptr) KRONSERVE_RETURN_IF_ERROR(reporter->Done(*summary));
  return summary;
}

}  // namespace kronserve::worker
