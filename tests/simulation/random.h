// Numbers drawn from a seed: the same everywhere, whatever the library.
//
// Layer: tests.

#ifndef KRONSERVE_TESTS_SIMULATION_RANDOM_H_
#define KRONSERVE_TESTS_SIMULATION_RANDOM_H_

#include <cstdint>

#include "absl/time/time.h"

namespace kronserve::simulation {

// splitmix64. Thread safety: none.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() { return Mix(state_ += 0x9e3779b97f4a7c15ULL); }
  // Uniform in [0, n); n is at least 1.
  int64_t Below(int64_t n) {
    return static_cast<int64_t>(Next() % static_cast<uint64_t>(n));
  }
  // Uniform in [low, high].
  int64_t Between(int64_t low, int64_t high) {
    return low + Below(high - low + 1);
  }
  absl::Duration Between(absl::Duration low, absl::Duration high) {
    return absl::Nanoseconds(
        Between(absl::ToInt64Nanoseconds(low), absl::ToInt64Nanoseconds(high)));
  }
  // Uniform in [0, 1).
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  bool Chance(double p) { return p > 0 && Unit() < p; }
  // For a process's incarnation: never 0.
  uint64_t NextId() { return Next() | 1; }

  static uint64_t Mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

}  // namespace kronserve::simulation

#endif  // KRONSERVE_TESTS_SIMULATION_RANDOM_H_
