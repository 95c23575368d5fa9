// One seed, one run, one verdict.
//
// Layer: tests. README.md beside this file says what is simulated.

#ifndef KRONSERVE_TESTS_SIMULATION_SIMULATION_H_
#define KRONSERVE_TESTS_SIMULATION_SIMULATION_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

namespace kronserve::simulation {

struct RunOptions {
  size_t keep_lines = 0;  // Newest lines of the trace to keep.
  std::function<void(const std::string&)> trace;  // Gets every line at once.
};

struct RunResult {
  uint64_t seed = 0;
  std::string failure;  // Empty when every promise was kept.
  std::deque<std::string> trace;
  int64_t events = 0;
  int64_t steps = 0;           // Of ranks.
  int64_t merged = 0;          // Contributions.
  int64_t preconditioned = 0;  // Layers, as ranks applied them.
  int64_t fallbacks = 0;
  int64_t handed_over = 0;  // Layers, to another server.
  int64_t restored = 0;     // Layers, from a checkpoint.
};

// The same seed gives the same run, whatever the options.
RunResult RunSeed(uint64_t seed, const RunOptions& options = {});

}  // namespace kronserve::simulation

#endif  // KRONSERVE_TESTS_SIMULATION_SIMULATION_H_
