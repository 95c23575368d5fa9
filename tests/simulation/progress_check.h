// Numbers that never go back, and assignments that are durable before anybody
// hears of them.
//
// Layer: tests. Source: PROTOCOL.md 2, 3, 6 and 10.

#ifndef KRONSERVE_TESTS_SIMULATION_PROGRESS_CHECK_H_
#define KRONSERVE_TESTS_SIMULATION_PROGRESS_CHECK_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "kronserve/v1/preconditioner.pb.h"
#include "scheduler/state_store.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/verdict.h"

namespace kronserve::simulation {

class ServerNode;

class ProgressCheck {
 public:
  explicit ProgressCheck(Verdict* verdict) : verdict_(*verdict) {}

  // The scheduler sends an assignment; `durable` is what its store would give
  // back after a power cut now.
  void OnSent(const v1::ConfigureJobRequest& request,
              const scheduler::StateMap& durable);
  // A rank was told of an assignment.
  void OnTold(const v1::Assignment& assignment,
              const scheduler::StateMap& durable);
  // After every input of a server.
  void OnServer(const ServerNode& server);
  // A rank holds or uses these epochs.
  void OnRank(const Process* rank, int64_t world, uint64_t held, uint64_t used);
  // A rank was let into a world.
  void OnWorld(const v1::World& world);

 private:
  struct Seen {
    uint64_t term = 0;
    uint64_t epoch = 0;
    int64_t world = 0;
    // Per layer: instance of its state, closed_through.
    std::map<int, std::pair<uint64_t, int64_t>> closed;
  };
  struct RankSeen {
    int64_t world = 0;
    uint64_t held = 0;
    uint64_t used = 0;
  };

  void Remember(const v1::Assignment& assignment, const char* what);
  void RequireDurable(uint64_t epoch, const scheduler::StateMap& durable,
                      const char* whom);

  Verdict& verdict_;
  std::map<const Process*, Seen> servers_;
  std::map<const Process*, RankSeen> ranks_;
  std::map<uint64_t, std::string> assignments_;  // By epoch: who owns what.
  uint64_t term_ = 0;
  std::map<int64_t, std::string> worlds_;
};

}  // namespace kronserve::simulation

#endif  // KRONSERVE_TESTS_SIMULATION_PROGRESS_CHECK_H_
