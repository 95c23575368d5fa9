// What a trainer holds beside the layers, as bytes (docs/checkpoint_format.md).
//
// Layer: checkpoint. May include proto/ and common/.
// worker/training/training_state.h puts parameters and optimizer in and takes
// them out; what can be judged without a model is judged here, by every reader.

#ifndef KRONSERVE_CHECKPOINT_TRAINER_FILE_H_
#define KRONSERVE_CHECKPOINT_TRAINER_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace kronserve::checkpoint {

// Then the floats of all parameters, those of all slots, and the XXH3-64 of
// everything before it.
struct TrainerHeader {
  uint64_t magic = 0x4554415453524b31;  // "1KRSTATE", read as bytes.
  int64_t next_step = 0;
  int64_t optimizer_steps = 0;
  int64_t parameters = 0;  // Matrices.
  int64_t slots = 0;       // Vectors; as many for each parameter, or none.
  int64_t floats = 0;      // Of all parameters; one slot of each has as many.
};

// Checks magic, checksum, and the size against the header.
//
// Errors:
//   kDataLoss  cut off, of another format version, damaged, or of another size
//              than its numbers say.
absl::StatusOr<TrainerHeader> CheckTrainerBytes(const std::string& bytes);

// All bytes of the file, unchecked.
//
// Errors, each with the path:
//   kNotFound, kPermissionDenied, kDataLoss  as ReadFault().
absl::StatusOr<std::string> ReadTrainerBytes(const std::string& path);

}  // namespace kronserve::checkpoint

#endif  // KRONSERVE_CHECKPOINT_TRAINER_FILE_H_
