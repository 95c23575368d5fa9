// A trainer's file, put together by hand.

#ifndef KRONSERVE_CHECKPOINT_TESTING_TRAINER_BYTES_H_
#define KRONSERVE_CHECKPOINT_TESTING_TRAINER_BYTES_H_

#include <cstdint>
#include <string>

#include "checkpoint/trainer_file.h"
#include "common/checksum.h"

namespace kronserve::checkpoint {

// Before step 7: a header of these numbers, `held` floats that are 0, and the
// checksum.
inline std::string TrainerBytes(int64_t parameters, int64_t slots,
                                int64_t floats, int64_t held) {
  TrainerHeader header;
  header.next_step = 7;
  header.parameters = parameters;
  header.slots = slots;
  header.floats = floats;
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(held * sizeof(float), '\0');
  const uint64_t checksum = Checksum(bytes.data(), bytes.size());
  bytes.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  return bytes;
}

}  // namespace kronserve::checkpoint

#endif  // KRONSERVE_CHECKPOINT_TESTING_TRAINER_BYTES_H_
