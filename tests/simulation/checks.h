// The invariants of PROTOCOL.md, watched from outside of the cluster.
//
// Layer: tests.

#ifndef KRONSERVE_TESTS_SIMULATION_CHECKS_H_
#define KRONSERVE_TESTS_SIMULATION_CHECKS_H_

#include "tests/simulation/agreement_check.h"
#include "tests/simulation/cluster_plan.h"
#include "tests/simulation/contribution_check.h"
#include "tests/simulation/progress_check.h"
#include "tests/simulation/service_check.h"
#include "tests/simulation/verdict.h"

namespace kronserve::simulation {

struct Checks {
  explicit Checks(const ClusterPlan& plan)
      : contributions(plan, &verdict),
        agreement(&verdict),
        progress(&verdict),
        service(plan, &verdict) {}

  template <typename Explain>
  bool Require(bool holds, const Explain& explain) {
    return verdict.Require(holds, explain);
  }

  Verdict verdict;
  ContributionCheck contributions;
  AgreementCheck agreement;
  ProgressCheck progress;
  ServiceCheck service;
};

}  // namespace kronserve::simulation

#endif  // KRONSERVE_TESTS_SIMULATION_CHECKS_H_
