#include "common/incarnation.h"

#include <random>

namespace kronserve {

uint64_t DrawIncarnation() {
  std::random_device device;
  uint64_t incarnation = 0;
  while (incarnation == 0) {
    incarnation = (uint64_t{device()} << 32) | device();
  }
  return incarnation;
}

}  // namespace kronserve
