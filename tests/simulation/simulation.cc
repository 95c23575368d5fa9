#include "tests/simulation/simulation.h"

#include "common/check.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/cluster_plan.h"
#include "tests/simulation/environment.h"

namespace kronserve::simulation {

RunResult RunSeed(uint64_t seed, const RunOptions& options) {
  Environment env(MakeClusterPlan(seed));
  auto tools = server::CreateTaskTools(linalg::Device::kReference);
  KRONSERVE_CHECK(tools.ok(), std::string(tools.status().message()));
  env.tools = *std::move(tools);
  if (options.keep_lines > 0) env.trace.Keep(options.keep_lines);
  if (options.trace != nullptr) env.trace.SendTo(options.trace);
  for (const std::string& line : Describe(env.plan)) {
    env.Say("plan", [&] { return line; });
  }
  Cluster cluster(&env);
  cluster.Run();
  RunResult result;
  result.seed = seed;
  result.failure = env.checks.verdict.why();
  env.Say("verdict",
          [&] { return result.failure.empty() ? "kept" : result.failure; });
  result.trace = env.trace.lines();
  result.events = env.queue.events_run();
  result.steps = env.checks.service.steps();
  result.merged = env.checks.contributions.merged();
  result.preconditioned = env.checks.agreement.preconditioned();
  result.fallbacks = env.checks.agreement.fallbacks();
  result.handed_over = env.checks.contributions.handed_over();
  result.restored = env.checks.contributions.restored();
  return result;
}

}  // namespace kronserve::simulation
