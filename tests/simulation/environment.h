// What every part of a simulated cluster shares.
//
// Layer: tests.

#ifndef KRONSERVE_TESTS_SIMULATION_ENVIRONMENT_H_
#define KRONSERVE_TESTS_SIMULATION_ENVIRONMENT_H_

#include <string>
#include <utility>

#include "server/tasks.h"
#include "tests/simulation/checks.h"
#include "tests/simulation/cluster_plan.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/network.h"
#include "tests/simulation/random.h"
#include "tests/simulation/trace.h"

namespace kronserve::simulation {

inline constexpr char kJob[] = "job";
inline constexpr char kScheduler[] = "sched";

struct Environment {
  explicit Environment(const ClusterPlan& cluster_plan)
      : plan(cluster_plan),
        random(Random::Mix(plan.seed ^ 0x5eedULL)),
        network(&queue, &random),
        checks(plan) {}

  // `text` is a function that makes the line: it runs only when it is read.
  template <typename Text>
  void Say(const std::string& who, const Text& text) {
    if (trace.on()) trace.Write(queue.now(), who, text());
  }
  absl::Time now() const { return queue.now(); }

  const ClusterPlan plan;
  EventQueue queue;
  Random random;
  Network network;
  Trace trace;
  Checks checks;
  server::TaskTools tools;
};

}  // namespace kronserve::simulation

#endif  // KRONSERVE_TESTS_SIMULATION_ENVIRONMENT_H_
