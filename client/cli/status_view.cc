#include "client/cli/status_view.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/cli/table.h"

namespace kronserve::client {
namespace {

using nlohmann::json;

// MEMBER_STATE_ALIVE -> "alive".
std::string Word(const std::string& enumerator, const std::string& prefix) {
  return absl::AsciiStrToLower(enumerator.substr(prefix.size()));
}

std::string StateWord(v1::MemberState state) {
  return v1::MemberState_IsValid(state)
             ? Word(v1::MemberState_Name(state), "MEMBER_STATE_")
             : "unknown";
}

std::string StateWord(v1::JobState state) {
  return v1::JobState_IsValid(state)
             ? Word(v1::JobState_Name(state), "JOB_STATE_")
             : "unknown";
}

// STATE_RECOVERY_NONE -> "none"; what a server has not said yet is "unknown".
std::string StateWord(v1::StateRecovery recovery) {
  return recovery == v1::STATE_RECOVERY_NONE     ? "none"
         : recovery == v1::STATE_RECOVERY_SHARED ? "shared"
                                                 : "unknown";
}

// RECOVERY_SOURCE_JOB_CHECKPOINT -> "job_checkpoint".
std::string SourceWord(v1::RecoverySource source) {
  return v1::RecoverySource_IsValid(source)
             ? Word(v1::RecoverySource_Name(source), "RECOVERY_SOURCE_")
             : "unknown";
}

Cell StateCell(v1::MemberState state) {
  const std::string word = StateWord(state);
  if (state == v1::MEMBER_STATE_ALIVE) return {word, Color::kGreen};
  if (state == v1::MEMBER_STATE_SUSPECT) return {word, Color::kYellow};
  return {word, Color::kRed};
}

Cell StateCell(v1::JobState state) {
  const std::string word = StateWord(state);
  if (state == v1::JOB_STATE_RUNNING) return {word, Color::kGreen};
  if (state == v1::JOB_STATE_FINISHED) return {word, Color::kDim};
  return {word, Color::kYellow};
}

std::string Millis(double seconds) {
  return absl::StrFormat("%.2f ms", 1e3 * seconds);
}

// Layers that each server owns by the newest assignments.
std::map<std::string, int> LayersByServer(const v1::GetStatusResponse& status) {
  std::map<std::string, int> layers;
  for (const v1::JobStatus& job : status.jobs()) {
    for (const v1::LayerOwner& owner : job.assignment().owners()) {
      ++layers[owner.server()];
    }
  }
  return layers;
}

std::string ServerTable(const v1::GetStatusResponse& status, bool colors) {
  if (status.servers().empty()) {
    return "No server has registered. Start one: kronserve-server --name=s1 "
           "--scheduler=HOST:PORT\n";
  }
  std::map<std::string, int> layers = LayersByServer(status);
  std::vector<std::vector<Cell>> rows = {{"SERVER", "STATE", "ADDRESS", "HEARD",
                                          "LAYERS", "MEMORY", "OF", "QUEUE",
                                          "BUSY", "PREDICTED"}};
  for (const v1::ServerStatus& server : status.servers()) {
    rows.push_back(
        {server.name(),
         server.draining() ? Cell("draining", Color::kYellow)
                           : StateCell(server.state()),
         server.address(),
         absl::StrFormat("%.1f s", server.heartbeat_age_seconds()),
         absl::StrCat(layers[server.name()]),
         FormatBytes(server.load().predicted_bytes()),
         FormatBytes(server.memory_bytes()),
         absl::StrCat(server.load().refresh_queue_depth()),
         absl::StrFormat("%.1f s", server.load().refresh_busy_seconds()),
         Millis(server.predicted_refresh_seconds())});
  }
  return FormatTable(rows, colors);
}

std::string JobTable(const v1::GetStatusResponse& status, bool colors) {
  if (status.jobs().empty()) return "No job has registered.\n";
  std::vector<std::vector<Cell>> rows = {{"JOB", "STATE", "RANKS", "WORLD",
                                          "STEP", "EPOCH", "LAYERS",
                                          "IMBALANCE", "RUN"}};
  for (const v1::JobStatus& job : status.jobs()) {
    rows.push_back({job.job(), StateCell(job.state()),
                    absl::StrCat(job.world().ranks_size()),
                    absl::StrCat(job.world().version()),
                    job.step() < 0 ? "-" : absl::StrCat(job.step()),
                    absl::StrCat(job.assignment().epoch()),
                    absl::StrCat(job.layers_size()),
                    absl::StrFormat("%.2f", job.imbalance()),
                    absl::StrCat(job.world().run_id(), " (restart ",
                                 job.world().restart_count(), ")")});
  }
  return FormatTable(rows, colors);
}

// What is known of one layer; a job that has no world yet has no owners.
struct LayerRow {
  const v1::LayerSpec* spec;
  std::string owner;
  int64_t from_step = 0;
  double seconds = 0;
};

std::vector<LayerRow> LayerRows(const v1::JobStatus& job) {
  std::vector<LayerRow> rows;
  for (int i = 0; i < job.layers_size(); ++i) {
    LayerRow row{&job.layers(i), "", 0, 0};
    if (i < job.assignment().owners_size()) {
      row.owner = job.assignment().owners(i).server();
      row.from_step = job.assignment().owners(i).from_step();
    }
    if (i < job.refresh_seconds_size()) row.seconds = job.refresh_seconds(i);
    rows.push_back(row);
  }
  return rows;
}

// A layer that nobody handed over, for people.
std::string RecoveryLine(const v1::JobStatus& job,
                         const v1::LayerRecovery& recovery) {
  const std::string name = recovery.layer() < job.layers_size()
                               ? job.layers(recovery.layer()).name()
                               : absl::StrCat("#", recovery.layer());
  const bool without = recovery.source() == v1::RECOVERY_SOURCE_FACTORS;
  const int64_t first = recovery.restored_through() + 1;
  const int64_t last = recovery.from_step() - 1;
  return absl::StrCat(
      "Layer '", name, "' began at step ", recovery.from_step(),
      without ? std::string(" without its state")
              : absl::StrCat(" from a ",
                             absl::StrReplaceAll(SourceWord(recovery.source()),
                                                 {{"_", " "}}),
                             " of step ", recovery.restored_through()),
      first > last ? ": nothing is lost"
                   : absl::StrCat(": factors of steps ", first, " to ", last,
                                  " are lost"),
      recovery.message().empty() ? ""
                                 : absl::StrCat(" (", recovery.message(), ")"));
}

// The first names, and how many there are.
std::string MovingLine(const v1::JobStatus& job) {
  constexpr int kMostNames = 8;
  std::string line = absl::StrCat("Moving: ", job.moving_size(), " layers:");
  for (int i = 0; i < std::min(job.moving_size(), kMostNames); ++i) {
    const int layer = job.moving(i);
    if (layer < 0 || layer >= job.layers_size()) continue;
    absl::StrAppend(&line, " ", job.layers(layer).name());
  }
  return job.moving_size() > kMostNames ? absl::StrCat(line, " ...") : line;
}

// One line each; as a table, which shows control characters of names as '?'.
using Notes = std::vector<std::vector<Cell>>;

// What is not as it should be, or on its way there.
Notes JobNotes(const v1::JobStatus& job) {
  Notes notes;
  for (const v1::LayerRecovery& recovery : job.recoveries()) {
    notes.push_back({RecoveryLine(job, recovery)});
  }
  if (!job.moving().empty()) {
    notes.push_back({MovingLine(job)});
  }
  if (!job.placement_note().empty()) {
    notes.push_back({absl::StrCat("Placement: ", job.placement_note())});
  }
  if (!job.checkpoint().empty()) {
    notes.push_back({absl::StrCat("Newest job checkpoint: '", job.checkpoint(),
                                  "' of step ", job.checkpoint_step())});
  }
  return notes;
}

// Whether layers of a lost server come back with their state, and for which
// servers they do not.
Notes RecoveryNotes(const v1::GetStatusResponse& status) {
  Notes notes;
  bool shared = false;
  for (const v1::ServerStatus& server : status.servers()) {
    if (server.state() == v1::MEMBER_STATE_DEAD) continue;
    shared |= server.state_recovery() == v1::STATE_RECOVERY_SHARED;
    if (server.state_recovery() != v1::STATE_RECOVERY_NONE) continue;
    const std::string& why = server.state_recovery_message();
    notes.push_back(
        {absl::StrCat("Server '", server.name(), "': state recovery: none (",
                      why.empty() ? "no reason given" : why, ")")});
  }
  if (notes.empty() && shared) notes.push_back({"State recovery: shared"});
  return notes;
}

std::string LayerTable(const v1::JobStatus& job, bool colors) {
  std::vector<std::vector<Cell>> rows = {
      {"LAYER", "SHAPE", "OWNER", "FROM STEP", "REFRESH"}};
  for (const LayerRow& row : LayerRows(job)) {
    const Cell owner =
        row.owner.empty() ? Cell("none", Color::kRed) : Cell(row.owner);
    rows.push_back(
        {row.spec->name(),
         absl::StrCat("[", row.spec->d_out(), ", ", row.spec->d_in(), "]"),
         owner, absl::StrCat(row.from_step), Millis(row.seconds)});
  }
  return absl::StrCat("\nLayers of job '", job.job(), "'\n",
                      FormatTable(rows, colors),
                      FormatTable(JobNotes(job), colors));
}

json ServerJson(const v1::ServerStatus& server, int layers) {
  return {
      {"name", server.name()},
      {"address", server.address()},
      {"incarnation", absl::StrCat(server.incarnation())},
      {"state", StateWord(server.state())},
      {"heartbeat_age_seconds", server.heartbeat_age_seconds()},
      {"layers", layers},
      {"memory_bytes", server.memory_bytes()},
      {"predicted_bytes", server.load().predicted_bytes()},
      {"refresh_queue_depth", server.load().refresh_queue_depth()},
      {"refresh_busy_seconds", server.load().refresh_busy_seconds()},
      {"predicted_refresh_seconds", server.predicted_refresh_seconds()},
      {"draining", server.draining()},
      {"state_recovery", StateWord(server.state_recovery())},
      {"state_recovery_message", server.state_recovery_message()},
  };
}

json JobJson(const v1::JobStatus& job) {
  json ranks = json::array();
  for (const v1::RankInfo& rank : job.world().ranks()) {
    ranks.push_back({{"rank", rank.rank()},
                     {"node", rank.node()},
                     {"incarnation", absl::StrCat(rank.incarnation())}});
  }
  json layers = json::array();
  for (const LayerRow& row : LayerRows(job)) {
    layers.push_back({{"name", row.spec->name()},
                      {"d_out", row.spec->d_out()},
                      {"d_in", row.spec->d_in()},
                      {"owner", row.owner},
                      {"from_step", row.from_step},
                      {"predicted_refresh_seconds", row.seconds}});
  }
  json recoveries = json::array();
  for (const v1::LayerRecovery& recovery : job.recoveries()) {
    recoveries.push_back({{"layer", recovery.layer()},
                          {"epoch", recovery.epoch()},
                          {"source", SourceWord(recovery.source())},
                          {"restored_through", recovery.restored_through()},
                          {"from_step", recovery.from_step()},
                          {"message", recovery.message()}});
  }
  return {
      {"name", job.job()},
      {"state", StateWord(job.state())},
      {"run_id", job.world().run_id()},
      {"restart_count", job.world().restart_count()},
      {"world_version", job.world().version()},
      {"start_step", job.world().start_step()},
      {"step", job.step()},
      {"epoch", job.assignment().epoch()},
      {"imbalance", job.imbalance()},
      {"ranks", std::move(ranks)},
      {"layers", std::move(layers)},
      {"recoveries", std::move(recoveries)},
      {"moving", job.moving_size()},
      {"placement_note", job.placement_note()},
      {"checkpoint", job.checkpoint()},
      {"checkpoint_step", job.checkpoint_step()},
  };
}

}  // namespace

std::string RenderText(const v1::GetStatusResponse& status,
                       const std::string& scheduler, bool colors) {
  std::string text =
      absl::StrCat("Scheduler ", scheduler, ", term ", status.term(),
                   ", state in ", status.store(), "\n\n");
  absl::StrAppend(&text, ServerTable(status, colors),
                  FormatTable(RecoveryNotes(status), colors), "\n",
                  JobTable(status, colors));
  for (const v1::JobStatus& job : status.jobs()) {
    if (!job.layers().empty()) absl::StrAppend(&text, LayerTable(job, colors));
  }
  return text;
}

std::string RenderJson(const v1::GetStatusResponse& status,
                       const std::string& scheduler) {
  std::map<std::string, int> layers = LayersByServer(status);
  json servers = json::array();
  for (const v1::ServerStatus& server : status.servers()) {
    servers.push_back(ServerJson(server, layers[server.name()]));
  }
  json jobs = json::array();
  for (const v1::JobStatus& job : status.jobs()) jobs.push_back(JobJson(job));
  const json document = {
      {"scheduler",
       {{"address", scheduler},
        {"term", status.term()},
        {"incarnation", absl::StrCat(status.incarnation())},
        {"store", status.store()}}},
      {"servers", std::move(servers)},
      {"jobs", std::move(jobs)},
  };
  // Names are any bytes; what is no UTF-8 is replaced, not an exception.
  return absl::StrCat(
      document.dump(2, ' ', false, json::error_handler_t::replace), "\n");
}

}  // namespace kronserve::client
