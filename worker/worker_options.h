// What a training process is told at its start.
//
// Layer: worker. May include client/ and lower.

#ifndef KRONSERVE_WORKER_WORKER_OPTIONS_H_
#define KRONSERVE_WORKER_WORKER_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/options.h"
#include "worker/session.h"
#include "worker/training/trainer.h"

namespace kronserve::worker {

// The flags of kronserve-worker, by their words. "auto" and the numbers that
// the help text names stand for a value that depends on others; the functions
// below resolve them.
struct WorkerOptions {
  WorkerOptions();

  // The job and this rank's place in it.
  std::string scheduler;
  std::string job = "train";
  std::string run_id = "run";
  int64_t restart_count = 0;
  int64_t rank = 0;
  int64_t world_size = 1;
  std::string node;  // This machine's name.
  absl::Duration join_timeout = absl::Seconds(60);
  bool elastic = false;
  int64_t min_ranks = 0;
  int64_t max_restarts = 100;
  int64_t checkpoint_every = 0;
  std::string checkpoint_dir;
  std::string resume;
  std::string collective = "gloo";
  std::string collective_host = "127.0.0.1";
  std::string collective_timeout = "auto";
  std::string device = "auto";

  // What is trained.
  std::string dataset = "fashion-mnist";
  std::string data_dir;
  std::string model = "mlp";
  std::string hidden = "256,128";
  std::string activation = "relu";
  std::string channels = "8,16";

  // How.
  int64_t batch = 256;
  int64_t accumulation = 1;
  int64_t epochs = 10;
  int64_t max_steps = 0;
  int64_t eval_every = 0;
  int64_t seed = 1;
  std::string optimizer = "kfac";
  double lr = 0;
  std::string lr_schedule = "constant";
  double momentum = 0.9;
  double beta1 = 0.9;
  double weight_decay = 0;
  double target_accuracy = 0;
  bool stop_at_target = false;

  // Of optimizer kfac; defaults are DefaultJobOptions() and StepSettings.
  double damping;
  double factor_decay;
  double kl_clip;
  int64_t factor_update_steps;
  int64_t inv_update_steps;
  int64_t max_staleness = -1;
  bool deterministic = false;
  std::string factor_source = "all";
  std::string method = "inverse";
  std::string damping_form = "factored";
  std::string factor_init = "warm";
  std::string refresh_schedule = "auto";
  std::string fallback = "matched";
  std::string step_budget = "auto";

  // What it shows.
  std::string events;
  std::string progress = "auto";
  bool verify_replicas = false;
  std::string hash_log;

  // Of ReadEnvironment(), reported with those of the flags.
  std::vector<std::string> environment_faults;
};

// Takes torchrun's variables as defaults: RANK, WORLD_SIZE, TORCHELASTIC_RUN_ID
// and TORCHELASTIC_RESTART_COUNT.
//
//   variable  the value of an environment variable, null when not set; getenv.
void ReadEnvironment(const std::function<const char*(const char*)>& variable,
                     WorkerOptions* options);

// Declares every flag of kronserve-worker. `options` outlives `set`.
void AddWorkerOptions(OptionSet* set, WorkerOptions* options);

// For options that AddWorkerOptions() accepted:

// True when this process needs a scheduler.
bool UsesJob(const WorkerOptions& options);
std::vector<int64_t> HiddenSizes(const WorkerOptions& options);
std::vector<int64_t> ConvChannels(const WorkerOptions& options);
double LearningRate(const WorkerOptions& options);
absl::Duration StepBudget(const WorkerOptions& options);
absl::Duration CollectiveTimeout(const WorkerOptions& options);
v1::JobOptions ToJobOptions(const WorkerOptions& options);
SessionOptions ToSessionOptions(const WorkerOptions& options);
TrainerOptions ToTrainerOptions(const WorkerOptions& options);

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_WORKER_OPTIONS_H_
