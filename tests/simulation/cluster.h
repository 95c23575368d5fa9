// A whole cluster in one thread: processes, faults, and their repair.
//
// Layer: tests.

#ifndef KRONSERVE_TESTS_SIMULATION_CLUSTER_H_
#define KRONSERVE_TESTS_SIMULATION_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/environment.h"
#include "tests/simulation/rank_node.h"
#include "tests/simulation/scheduler_node.h"
#include "tests/simulation/server_node.h"

namespace kronserve::simulation {

class Cluster final : public Launcher {
 public:
  explicit Cluster(Environment* env);

  // Runs until the plan's end, or until a promise is broken.
  void Run();

  int64_t restart_count() const override { return restart_count_; }
  JobGroup* GroupOf(const v1::World& world) override;
  void NobodyKnows(int64_t world) override;
  const scheduler::StateMap& durable() const override {
    return store_.durable();
  }

 private:
  void StartScheduler();
  void StartServer(int index);
  void StartRank(int rank, const TrainingState& state);
  void SaveTraining();

  void Begin(const Fault& fault);
  void End(const Fault& fault);
  void BeginAtServer(const Fault& fault);
  void BeginAtRank(const Fault& fault);
  void BeginAtScheduler(const Fault& fault);
  // Whether some server waits for a layer from this one.
  bool IsAwaitedFrom(const std::string& source) const;
  void CutServer(const Fault& fault, bool cut);
  void RepairAll();
  // What a person asks of the scheduler; asked again until it is answered.
  template <typename Response>
  void Ask(std::function<absl::StatusOr<Response>(scheduler::SchedulerCore*,
                                                  absl::Time)>
               ask);
  void Drain(int server, bool undo);
  void Pin(int layer, const std::string& server);
  // A rank died or the ranks lost one another: all join again.
  void RestartRanks();
  const TrainingState* LivingState() const;

  Environment* const env_;
  SimulatedStore store_;
  SimulatedCheckpoints checkpoints_;
  // Dead ones stay: events that will not run any more point to them.
  std::vector<std::unique_ptr<SchedulerNode>> schedulers_;
  std::vector<std::unique_ptr<ServerNode>> all_servers_;
  std::vector<std::unique_ptr<RankNode>> all_ranks_;
  std::vector<ServerNode*> servers_;  // The newest life of each.
  std::vector<RankNode*> ranks_;
  std::map<int64_t, std::unique_ptr<JobGroup>> groups_;  // By world.
  const ProcessPtr operator_ = std::make_shared<Process>("operator");
  int64_t restart_count_ = 0;
  TrainingState saved_;
};

}  // namespace kronserve::simulation

#endif  // KRONSERVE_TESTS_SIMULATION_CLUSTER_H_
