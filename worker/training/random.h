// Random numbers that are the same on every machine and standard library.
//
// Layer: worker. May include nothing else of this repository.
// The standard fixes the bits of std::mt19937_64, but not those of its
// distributions, hence our own.

#ifndef KRONSERVE_WORKER_TRAINING_RANDOM_H_
#define KRONSERVE_WORKER_TRAINING_RANDOM_H_

#include <cstdint>
#include <random>

namespace kronserve::worker {

// Thread safety: none.
class RandomStream {
 public:
  // Streams of one seed are independent of one another.
  RandomStream(uint64_t seed, uint64_t stream);

  // In [0, 1), a multiple of 2^-53.
  double Uniform();
  // Of mean 0 and variance 1 (Box-Muller).
  double Normal();
  // In [0, bound), without bias; bound >= 1.
  uint64_t Below(uint64_t bound);

 private:
  std::mt19937_64 engine_;
};

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_TRAINING_RANDOM_H_
