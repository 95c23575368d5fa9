// A number that tells a restarted process from a slow one.
//
// Layer: common. May include nothing else of this repository.

#ifndef KRONSERVE_COMMON_INCARNATION_H_
#define KRONSERVE_COMMON_INCARNATION_H_

#include <cstdint>

namespace kronserve {

// Draws a random incarnation, never 0. Called once per process, in main.
uint64_t DrawIncarnation();

}  // namespace kronserve

#endif  // KRONSERVE_COMMON_INCARNATION_H_
