#include "worker/training/training_state.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "checkpoint/trainer_file.h"
#include "common/checksum.h"
#include "common/status_macros.h"

namespace kronserve::worker {
namespace {

using checkpoint::TrainerHeader;

int64_t FloatsOf(const std::vector<linalg::MatrixView<float>>& parameters) {
  int64_t floats = 0;
  for (const auto& parameter : parameters) floats += parameter.size();
  return floats;
}

TrainerHeader HeaderOf(int64_t next_step, const TrainingStateParts& parts) {
  const OptimizerState<float>& state = parts.optimizer->state();
  TrainerHeader header;
  header.next_step = next_step;
  header.optimizer_steps = state.steps;
  header.parameters = static_cast<int64_t>(parts.parameters.size());
  header.slots = static_cast<int64_t>(state.slots.size());
  header.floats = FloatsOf(parts.parameters);
  return header;
}

void Append(const void* data, size_t bytes, std::string* out) {
  out->append(static_cast<const char*>(data), bytes);
}

absl::Status CheckFits(const TrainerHeader& header,
                       const TrainingStateParts& parts) {
  const TrainerHeader mine = HeaderOf(0, parts);
  const int64_t per_parameter = parts.optimizer->slots_per_parameter();
  if (header.parameters == mine.parameters && header.floats == mine.floats &&
      (header.slots == 0 || header.slots == per_parameter * mine.parameters)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "training state is of another model or optimizer: ", header.parameters,
      " matrices of ", header.floats, " numbers with ", header.slots,
      " optimizer slots; this run has ", mine.parameters, " of ", mine.floats,
      " with ", per_parameter, " slots each"));
}

void Take(const char** from, float* to, size_t count) {
  std::memcpy(to, *from, count * sizeof(float));
  *from += count * sizeof(float);
}

absl::Status CheckBegins(int64_t start_step) {
  if (start_step == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the job goes on with step ", start_step,
      ", and no rank has the training state before it: all that had it are "
      "gone. Start all ranks with --resume and a higher --restart-count, or "
      "another job"));
}

}  // namespace

std::string EncodeTrainingState(int64_t next_step,
                                const TrainingStateParts& parts) {
  const TrainerHeader header = HeaderOf(next_step, parts);
  const int64_t copies =
      header.slots == 0 ? 1 : 1 + parts.optimizer->slots_per_parameter();
  std::string bytes;
  bytes.reserve(sizeof(header) + copies * header.floats * sizeof(float) +
                sizeof(uint64_t));
  Append(&header, sizeof(header), &bytes);
  for (const auto& parameter : parts.parameters) {
    Append(parameter.data, parameter.size() * sizeof(float), &bytes);
  }
  for (const auto& slot : parts.optimizer->state().slots) {
    Append(slot.data(), slot.size() * sizeof(float), &bytes);
  }
  const uint64_t checksum = Checksum(bytes.data(), bytes.size());
  Append(&checksum, sizeof(checksum), &bytes);
  return bytes;
}

absl::StatusOr<int64_t> DecodeTrainingState(const std::string& bytes,
                                            const TrainingStateParts& parts) {
  KRONSERVE_ASSIGN_OR_RETURN(const TrainerHeader header,
                             checkpoint::CheckTrainerBytes(bytes));
  KRONSERVE_RETURN_IF_ERROR(CheckFits(header, parts));
  const char* next = bytes.data() + sizeof(header);
  for (const auto& parameter : parts.parameters) {
    Take(&next, parameter.data, parameter.size());
  }
  OptimizerState<float> state;
  state.steps = header.optimizer_steps;
  for (int64_t i = 0; i < header.slots; ++i) {
    state.slots.emplace_back(
        parts.parameters[i % parts.parameters.size()].size());
    Take(&next, state.slots.back().data(), state.slots.back().size());
  }
  parts.optimizer->state() = std::move(state);
  return header.next_step;
}

absl::Status ShareTrainingState(Communicator& group, int64_t start_step,
                                std::optional<int64_t> own_next_step,
                                const TrainingStateParts& parts) {
  const int64_t mine = own_next_step.value_or(-1);
  std::vector<int64_t> all(group.size());
  KRONSERVE_RETURN_IF_ERROR(group.AllGather(&mine, sizeof(mine), all.data()));
  const auto source = std::find(all.begin(), all.end(), start_step);
  if (source == all.end()) {
    const bool none = std::all_of(all.begin(), all.end(),
                                  [](int64_t step) { return step < 0; });
    if (none) return CheckBegins(start_step);
    return absl::UnavailableError(absl::StrCat("the world starts at step ",
                                               start_step,
                                               ", but no rank has the state "
                                               "of that step"));
  }
  const int root = static_cast<int>(source - all.begin());
  std::string bytes;
  if (group.rank() == root) bytes = EncodeTrainingState(start_step, parts);
  uint64_t size = bytes.size();
  KRONSERVE_RETURN_IF_ERROR(group.Broadcast(&size, sizeof(size), root));
  bytes.resize(size);
  KRONSERVE_RETURN_IF_ERROR(group.Broadcast(bytes.data(), size, root));
  if (group.rank() == root) return absl::OkStatus();
  return DecodeTrainingState(bytes, parts).status();
}

}  // namespace kronserve::worker
