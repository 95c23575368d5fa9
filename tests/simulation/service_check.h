// How long ranks wait, and that all layers are served again after the faults.
//
// Layer: tests. Source: PROTOCOL.md 5; DESIGN.md 6.

#ifndef KRONSERVE_TESTS_SIMULATION_SERVICE_CHECK_H_
#define KRONSERVE_TESTS_SIMULATION_SERVICE_CHECK_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "tests/simulation/agreement_check.h"
#include "tests/simulation/cluster_plan.h"
#include "tests/simulation/verdict.h"

namespace kronserve::simulation {

class ServiceCheck {
 public:
  ServiceCheck(const ClusterPlan& plan, Verdict* verdict)
      : plan_(plan), verdict_(*verdict) {}

  // A rank has waited for the servers in one step.
  void OnWaited(int64_t world, int64_t step, int rank, absl::Duration waited,
                bool was_frozen);
  // All ranks have agreed on a step; `why` has this rank's reasons.
  void OnOutcome(absl::Duration now, int64_t step, bool voided,
                 const std::vector<AppliedLayer>& layers,
                 const std::vector<std::string>& why);
  // A server was lost, and another waited for a layer from it. Each may make
  // one step longer: see README.md.
  void OnLoss() { ++losses_; }
  void OnInterruptedMove() { ++interrupted_; }

  // At the end of a run.
  void Finish();

  int64_t steps() const { return steps_; }

 private:
  const ClusterPlan& plan_;
  Verdict& verdict_;
  std::set<std::pair<int64_t, int64_t>> long_steps_;  // World, step.
  int64_t losses_ = 0;
  int64_t interrupted_ = 0;
  int64_t steps_ = 0;
  int64_t served_ = 0;     // Steps after the last fault's time.
  absl::Duration newest_;  // When a rank was last told an outcome.
};

}  // namespace kronserve::simulation

#endif  // KRONSERVE_TESTS_SIMULATION_SERVICE_CHECK_H_
