#include "worker/training/random.h"

#include <cmath>

namespace kronserve::worker {
namespace {

// The finaliser of SplitMix64: neighbouring seeds give unrelated states.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

RandomStream::RandomStream(uint64_t seed, uint64_t stream)
    : engine_(Mix(Mix(seed) + stream)) {}

double RandomStream::Uniform() {
  return static_cast<double>(engine_() >> 11) * 0x1p-53;
}

double RandomStream::Normal() {
  const double radius = std::sqrt(-2.0 * std::log1p(-Uniform()));
  return radius * std::cos(2.0 * M_PI * Uniform());
}

uint64_t RandomStream::Below(uint64_t bound) {
  // Values below the threshold would favour small results; they are redrawn.
  const uint64_t threshold = (0 - bound) % bound;
  uint64_t value = engine_();
  while (value < threshold) value = engine_();
  return value % bound;
}

}  // namespace kronserve::worker
