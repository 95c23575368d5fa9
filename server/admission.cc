#include "server/admission.h"

#include "absl/strings/str_cat.h"

namespace kronserve::server {

absl::Status MemoryAdmission::Admit(const std::string& job, int64_t bytes) {
  const int64_t others = total_ - predicted(job);
  if (bytes > limit_ - others) {
    return absl::ResourceExhaustedError(
        absl::StrCat("job '", job, "' needs ", bytes, " bytes here, ",
                     limit_ - others, " of ", limit_, " are free"));
  }
  predicted_[job] = bytes;
  total_ = others + bytes;
  return absl::OkStatus();
}

void MemoryAdmission::Release(const std::string& job) {
  total_ -= predicted(job);
  predicted_.erase(job);
}

int64_t MemoryAdmission::predicted(const std::string& job) const {
  const auto it = predicted_.find(job);
  return it == predicted_.end() ? 0 : it->second;
}

absl::Status StagingBudget::Reserve(int64_t bytes) {
  if (bytes > limit_ - staged_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("needs ", bytes, " bytes of staging, ", staged_, " of ",
                     limit_, " are in use; retry later"));
  }
  staged_ += bytes;
  return absl::OkStatus();
}

}  // namespace kronserve::server
