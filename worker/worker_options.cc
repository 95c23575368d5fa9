#include "worker/worker_options.h"

#include <unistd.h>

#include <algorithm>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "worker/session_options.h"

namespace kronserve::worker {
namespace {

using IntRange = OptionSet::IntRange;
using RealRange = OptionSet::RealRange;

constexpr int64_t kManySteps = int64_t{1} << 40;
constexpr int64_t kMaxLayerSize = int64_t{1} << 20;
constexpr absl::Duration kLeastCollectiveTimeout = absl::Seconds(30);

std::string MachineName() {
  char name[256] = {};
  // A name that does not fit is cut; an empty one cannot tell nodes apart.
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') {
    return "node0";
  }
  return name;
}

// "256,128" as numbers; empty when it is not a list of sizes.
std::vector<int64_t> ParseSizes(const std::string& text) {
  std::vector<int64_t> sizes;
  for (const auto part : absl::StrSplit(text, ',')) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 1 || size > kMaxLayerSize) {
      return {};
    }
    sizes.push_back(size);
  }
  return sizes;
}

// Zero when `text` is not a duration above zero.
absl::Duration ParseAutoDuration(const std::string& text,
                                 absl::Duration automatic) {
  if (text == "auto") return automatic;
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration)) return absl::ZeroDuration();
  return std::max(duration, absl::ZeroDuration());
}

int64_t Staleness(const WorkerOptions& options) {
  if (options.max_staleness >= 0) return options.max_staleness;
  return options.deterministic ? 0 : DefaultJobOptions().max_staleness();
}

v1::JobOptions BaseJobOptions(const WorkerOptions& options) {
  return Staleness(options) == 0 ? SynchronousJobOptions()
                                 : DefaultJobOptions();
}

void AddJobFlags(OptionSet* set, WorkerOptions* o) {
  set->Add(
      "scheduler", &o->scheduler,
      "host:port of the scheduler (of several: comma-separated); only kfac and "
      "several ranks need one");
  set->Add("job", &o->job, "name of the job, equal on all ranks");
  set->Add("run-id", &o->run_id,
           "tells runs of one job apart ($TORCHELASTIC_RUN_ID)");
  set->Add("restart-count", &o->restart_count,
           "a higher one replaces the ranks of the run "
           "($TORCHELASTIC_RESTART_COUNT)",
           IntRange{0, std::numeric_limits<int32_t>::max()});
  set->Add("rank", &o->rank, "number of this process, from 0 ($RANK)",
           IntRange{0, 65535});
  set->Add("world-size", &o->world_size, "number of processes ($WORLD_SIZE)",
           IntRange{1, 65536});
  set->Add("node", &o->node, "ranks of one name share a machine");
  set->Add("join-timeout", &o->join_timeout,
           "how long to wait for servers and other ranks at the start");
  set->Add("elastic", &o->elastic,
           "join again when a rank is lost or comes, instead of failing; give "
           "it on all ranks, and start a lost one again as it was started");
  set->Add("min-ranks", &o->min_ranks,
           "with elastic: fewest ranks to train with; the others are waited "
           "for until nobody new has come for a lease. 0: world-size",
           IntRange{0, 65536});
  set->Add("max-restarts", &o->max_restarts,
           "with elastic: how often this process joins again before it fails",
           IntRange{0, 1000000});
  set->Add("checkpoint-every", &o->checkpoint_every,
           "steps between job checkpoints, which rank 0 asks for; 0: none",
           IntRange{0, kManySteps});
  set->Add("checkpoint-dir", &o->checkpoint_dir,
           "the servers' checkpoint-dir, for the trainer's part: parameters "
           "and optimizer state");
  set->Add("resume", &o->resume,
           "id of a job checkpoint to go on from, exactly; a job that is still "
           "known needs a higher restart-count");
  set->Add("collective", &o->collective, "what connects the ranks", {"gloo"});
  set->Add("collective-host", &o->collective_host,
           "address of this machine for the other ranks; neither encrypted nor "
           "authenticated");
  set->Add("collective-timeout", &o->collective_timeout,
           "how long one rank waits for another; at least 4 step budgets");
  set->Add("device", &o->device, "where to compute",
           {"auto", "cuda", "cpu", "reference"});
}

void AddTrainingFlags(OptionSet* set, WorkerOptions* o) {
  set->Add("dataset", &o->dataset, "what to learn",
           {"fashion-mnist", "digits"});
  set->Add("data-dir", &o->data_dir,
           "folder of the data set; default: where its Debian package is");
  set->Add("model", &o->model, "network", {"mlp", "convnet"});
  set->Add("hidden", &o->hidden, "sizes of the MLP's hidden layers");
  set->Add("activation", &o->activation, "between the MLP's layers",
           {"relu", "tanh"});
  set->Add("channels", &o->channels, "of the convnet's two convolutions");
  set->Add("batch", &o->batch, "rows per step, over all ranks",
           IntRange{1, int64_t{1} << 24});
  set->Add("accumulation", &o->accumulation, "micro-batches per rank and step",
           IntRange{1, 4096});
  set->Add("epochs", &o->epochs, "passes over the training set",
           IntRange{1, 1000000});
  set->Add("max-steps", &o->max_steps, "stop after so many steps; 0: no limit",
           IntRange{0, kManySteps});
  set->Add("eval-every", &o->eval_every,
           "steps between evaluations on the test set; 0: each epoch",
           IntRange{0, kManySteps});
  set->Add("seed", &o->seed, "of initial weights and row order",
           IntRange{0, std::numeric_limits<int64_t>::max()});
  set->Add("optimizer", &o->optimizer,
           "kfac is sgd on gradients that the service preconditioned",
           {"kfac", "sgd", "adam"});
  set->Add("lr", &o->lr, "learning rate; 0: 0.1, or 0.001 with adam",
           RealRange{0, 1e6});
  set->Add("lr-schedule", &o->lr_schedule, "cosine ends at 0",
           {"constant", "cosine"});
  set->Add("momentum", &o->momentum, "of kfac and sgd", RealRange{0, 1});
  set->Add("beta1", &o->beta1, "of adam: weight on its old mean gradient",
           RealRange{0, 0.999999});
  set->Add("weight-decay", &o->weight_decay,
           "added to the gradient after preconditioning", RealRange{0, 1e3});
  set->Add("target-accuracy", &o->target_accuracy,
           "report when the test accuracy is reached; 0: none",
           RealRange{0, 1});
  set->Add("stop-at-target", &o->stop_at_target, "end the run there");
}

void AddKfacFlags(OptionSet* set, WorkerOptions* o) {
  set->Add("damping", &o->damping, "of the factors", RealRange{0, 1e9});
  set->Add("factor-decay", &o->factor_decay,
           "weight on the old value of a factor's average",
           RealRange{0, 0.999999});
  set->Add("kl-clip", &o->kl_clip, "bound of the KL clip; 0: none",
           RealRange{0, 1e9});
  set->Add("factor-update-steps", &o->factor_update_steps,
           "steps between factor rounds", IntRange{1, 1000000});
  set->Add("inv-update-steps", &o->inv_update_steps,
           "steps between refreshes of a layer", IntRange{1, 1000000});
  set->Add("max-staleness", &o->max_staleness,
           "steps a refresh may be late; 0: synchronous; -1: 10, or 0 with "
           "deterministic",
           IntRange{-1, 1000000});
  set->Add("deterministic", &o->deterministic,
           "the same bits in every run; synchronous");
  set->Add("factor-source", &o->factor_source, "whose data factors come from",
           {"all", "one-rank"});
  set->Add("method", &o->method, "how factors are inverted",
           {"inverse", "eigen"});
  set->Add("damping-form", &o->damping_form, "exact needs method eigen",
           {"factored", "exact"});
  set->Add("factor-init", &o->factor_init, "how the averages start",
           {"warm", "identity", "first"});
  set->Add("refresh-schedule", &o->refresh_schedule,
           "all layers at once, or spread over the interval; auto: aligned "
           "when synchronous",
           {"auto", "staggered", "aligned"});
  set->Add("fallback", &o->fallback,
           "what a layer's gradient becomes when it was not preconditioned",
           {"matched", "plain", "skip"});
  set->Add("step-budget", &o->step_budget,
           "how long a step may wait for the service; auto: 2s, or 1m when "
           "synchronous");
}

void AddOutputFlags(OptionSet* set, WorkerOptions* o) {
  set->Add("events", &o->events, "file for JSON lines (rank 0)");
  set->Add("progress", &o->progress,
           "always: a bar; auto: a bar on a terminal, else lines",
           {"auto", "always", "never"});
  set->Add("verify-replicas", &o->verify_replicas,
           "compare all ranks' parameters after every step");
  set->Add("hash-log", &o->hash_log,
           "file for lines 'step hash' of this rank's parameters");
}

std::string CheckPlace(const WorkerOptions& o) {
  if (o.rank >= o.world_size) {
    return absl::StrCat("rank ", o.rank, " is not below world-size ",
                        o.world_size);
  }
  return "";
}

std::string CheckScheduler(const WorkerOptions& o) {
  if (!UsesJob(o) || !o.scheduler.empty()) return "";
  return absl::StrCat("scheduler is needed for optimizer ", o.optimizer,
                      " with ", o.world_size, " ranks: host:port");
}

std::string CheckElastic(const WorkerOptions& o) {
  if (o.min_ranks > 0 && !o.elastic) return "min-ranks needs elastic";
  if (o.min_ranks > o.world_size) {
    return absl::StrCat("min-ranks ", o.min_ranks, " is above world-size ",
                        o.world_size);
  }
  if (!o.elastic || UsesJob(o)) return "";
  return absl::StrCat("elastic needs a job: optimizer ", o.optimizer, " with ",
                      o.world_size, " rank has none");
}

std::string CheckCheckpoints(const WorkerOptions& o) {
  const bool asked = o.checkpoint_every > 0 || !o.resume.empty();
  if (!asked) return "";
  if (o.optimizer != "kfac") {
    return absl::StrCat(
        "checkpoint-every and resume are of optimizer kfac, "
        "not ",
        o.optimizer);
  }
  return o.checkpoint_dir.empty()
             ? "checkpoint-every and resume need checkpoint-dir"
             : "";
}

std::string CheckBatch(const WorkerOptions& o) {
  if (o.batch >= o.world_size * o.accumulation) return "";
  return absl::StrCat("batch ", o.batch, " is too small for ", o.world_size,
                      " ranks of ", o.accumulation, " micro-batches");
}

std::string CheckSizes(const WorkerOptions& o) {
  if (o.model == "mlp" && HiddenSizes(o).empty()) {
    return absl::StrCat("hidden '", o.hidden,
                        "' is not a list of sizes such as 256,128");
  }
  if (o.model == "convnet" && ConvChannels(o).size() != 2) {
    return absl::StrCat("channels '", o.channels,
                        "' are not two sizes such as 8,16");
  }
  return "";
}

std::string CheckTimes(const WorkerOptions& o) {
  const absl::Duration budget = StepBudget(o);
  if (budget < absl::Milliseconds(2)) {
    return absl::StrCat("step-budget '", o.step_budget,
                        "' is not auto or a duration of 2ms or more");
  }
  const absl::Duration timeout = CollectiveTimeout(o);
  if (timeout <= absl::ZeroDuration()) {
    return absl::StrCat("collective-timeout '", o.collective_timeout,
                        "' is not auto or a duration such as 30s");
  }
  if (timeout >= 4 * budget) return "";
  return absl::StrCat("collective-timeout ", absl::FormatDuration(timeout),
                      " is below 4 step budgets of ",
                      absl::FormatDuration(budget));
}

std::string CheckMethod(const WorkerOptions& o) {
  if (o.damping_form == "exact" && o.method != "eigen") {
    return "damping-form exact needs method eigen";
  }
  if (o.deterministic && o.max_staleness > 0) {
    return absl::StrCat("deterministic needs max-staleness 0, not ",
                        o.max_staleness);
  }
  return "";
}

std::string CheckTarget(const WorkerOptions& o) {
  if (!o.stop_at_target || o.target_accuracy > 0) return "";
  return "stop-at-target needs target-accuracy above 0";
}

}  // namespace

WorkerOptions::WorkerOptions() : node(MachineName()) {
  const v1::JobOptions job_options = DefaultJobOptions();
  factor_update_steps = job_options.factor_update_steps();
  inv_update_steps = job_options.inv_update_steps();
  const StepSettings settings;
  damping = settings.damping;
  factor_decay = settings.factor_decay;
  kl_clip = settings.kl_clip.value_or(0);
}

void ReadEnvironment(const std::function<const char*(const char*)>& variable,
                     WorkerOptions* options) {
  const auto read_number = [&](const char* name, int64_t* target) {
    const char* value = variable(name);
    if (value == nullptr || absl::SimpleAtoi(value, target)) return;
    options->environment_faults.push_back(absl::StrCat(
        "environment variable ", name, "='", value, "' is not a number"));
  };
  read_number("RANK", &options->rank);
  read_number("WORLD_SIZE", &options->world_size);
  read_number("TORCHELASTIC_RESTART_COUNT", &options->restart_count);
  const char* run_id = variable("TORCHELASTIC_RUN_ID");
  if (run_id != nullptr && *run_id != '\0') options->run_id = run_id;
}

void AddWorkerOptions(OptionSet* set, WorkerOptions* options) {
  AddJobFlags(set, options);
  AddTrainingFlags(set, options);
  AddKfacFlags(set, options);
  AddOutputFlags(set, options);
  for (const char* required : {"job", "run-id", "node", "collective-host"}) {
    set->Require(required);
  }
  for (const std::string& fault : options->environment_faults) {
    set->Check([fault] { return fault; });
  }
  for (const auto check :
       {&CheckPlace, &CheckScheduler, &CheckElastic, &CheckCheckpoints,
        &CheckBatch, &CheckSizes, &CheckTimes, &CheckMethod, &CheckTarget}) {
    set->Check([options, check] { return check(*options); });
  }
}

bool UsesJob(const WorkerOptions& options) {
  return options.world_size > 1 || options.optimizer == "kfac";
}

std::vector<int64_t> HiddenSizes(const WorkerOptions& options) {
  return ParseSizes(options.hidden);
}

std::vector<int64_t> ConvChannels(const WorkerOptions& options) {
  return ParseSizes(options.channels);
}

double LearningRate(const WorkerOptions& options) {
  if (options.lr > 0) return options.lr;
  return options.optimizer == "adam" ? 0.001 : 0.1;
}

absl::Duration StepBudget(const WorkerOptions& options) {
  return ParseAutoDuration(
      options.step_budget,
      absl::Milliseconds(BaseJobOptions(options).step_budget_ms()));
}

absl::Duration CollectiveTimeout(const WorkerOptions& options) {
  return ParseAutoDuration(
      options.collective_timeout,
      std::max(kLeastCollectiveTimeout, 4 * StepBudget(options)));
}

v1::JobOptions ToJobOptions(const WorkerOptions& options) {
  v1::JobOptions job = BaseJobOptions(options);
  job.set_factor_update_steps(options.factor_update_steps);
  job.set_inv_update_steps(options.inv_update_steps);
  job.set_max_staleness(Staleness(options));
  job.set_deterministic(options.deterministic);
  job.set_method(options.method == "eigen" ? v1::COMPUTE_METHOD_EIGEN
                                           : v1::COMPUTE_METHOD_INVERSE);
  job.set_damping_form(options.damping_form == "exact"
                           ? v1::DAMPING_FORM_EXACT
                           : v1::DAMPING_FORM_FACTORED);
  job.set_factor_init(options.factor_init == "identity"
                          ? v1::FACTOR_INIT_IDENTITY
                      : options.factor_init == "first" ? v1::FACTOR_INIT_FIRST
                                                       : v1::FACTOR_INIT_WARM);
  job.set_factor_source(options.factor_source == "one-rank"
                            ? v1::FACTOR_SOURCE_ONE_RANK
                            : v1::FACTOR_SOURCE_ALL);
  if (options.refresh_schedule != "auto") {
    job.set_refresh_schedule(options.refresh_schedule == "aligned"
                                 ? v1::REFRESH_SCHEDULE_ALIGNED
                                 : v1::REFRESH_SCHEDULE_STAGGERED);
  }
  job.set_fallback(options.fallback == "plain"  ? v1::FALLBACK_KIND_PLAIN
                   : options.fallback == "skip" ? v1::FALLBACK_KIND_SKIP
                                                : v1::FALLBACK_KIND_MATCHED);
  if (options.step_budget != "auto") {
    const int64_t budget_ms = absl::ToInt64Milliseconds(StepBudget(options));
    job.set_step_budget_ms(budget_ms);
    job.set_round_deadline_ms(std::min(job.round_deadline_ms(), budget_ms / 2));
  }
  return job;
}

SessionOptions ToSessionOptions(const WorkerOptions& options) {
  SessionOptions session;
  session.scheduler = options.scheduler;
  session.job = options.job;
  session.run_id = options.run_id;
  session.restart_count = options.restart_count;
  session.rank = static_cast<int>(options.rank);
  session.world_size = static_cast<int>(options.world_size);
  session.node = options.node;
  session.device = options.device;
  session.join_timeout = options.join_timeout;
  session.restore_checkpoint = options.resume;
  if (options.elastic) {
    session.min_ranks = static_cast<int>(
        options.min_ranks > 0 ? options.min_ranks : options.world_size);
  }
  session.job_options = ToJobOptions(options);
  return session;
}

TrainerOptions ToTrainerOptions(const WorkerOptions& options) {
  TrainerOptions trainer;
  trainer.batch = options.batch;
  trainer.accumulation = options.accumulation;
  trainer.epochs = options.epochs;
  trainer.max_steps = options.max_steps;
  trainer.eval_every = options.eval_every;
  trainer.seed = static_cast<uint64_t>(options.seed);
  trainer.lr = LearningRate(options);
  trainer.cosine = options.lr_schedule == "cosine";
  trainer.settings.damping = options.damping;
  trainer.settings.factor_decay = options.factor_decay;
  trainer.settings.kl_clip.reset();
  if (options.kl_clip > 0) trainer.settings.kl_clip = options.kl_clip;
  if (options.target_accuracy > 0) {
    trainer.target_accuracy = options.target_accuracy;
  }
  trainer.stop_at_target = options.stop_at_target;
  trainer.verify_replicas = options.verify_replicas;
  trainer.hash_log = options.hash_log;
  trainer.fingerprint =
      absl::StrCat(options.optimizer, " ", options.momentum, " ", options.beta1,
                   " ", options.weight_decay, " ", options.model);
  return trainer;
}

}  // namespace kronserve::worker
