#include "worker/training/replica_check.h"

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "common/status_macros.h"

namespace kronserve::worker {

uint64_t HashParameters(
    const std::vector<linalg::MatrixView<float>>& parameters) {
  std::vector<uint64_t> hashes;
  for (const auto& parameter : parameters) {
    hashes.push_back(
        Checksum(parameter.data, parameter.size() * sizeof(float)));
  }
  return Checksum(hashes.data(), hashes.size() * sizeof(uint64_t));
}

absl::Status CheckSameHash(Communicator& group, int64_t step, uint64_t hash) {
  // The minimum of the complements is the complement of the maximum.
  int64_t bounds[] = {static_cast<int64_t>(hash), static_cast<int64_t>(~hash)};
  KRONSERVE_RETURN_IF_ERROR(group.AllReduceMin(bounds, 2));
  if (bounds[0] == ~bounds[1]) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "step ", step, ": the ranks' parameters differ; rank ", group.rank(),
      " of ", group.size(), " has hash ", absl::Hex(hash, absl::kZeroPad16)));
}

}  // namespace kronserve::worker
