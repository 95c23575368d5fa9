// Bytes that are promised and bytes that are under way, each with its limit.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.

#ifndef KRONSERVE_SERVER_ADMISSION_H_
#define KRONSERVE_SERVER_ADMISSION_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"

namespace kronserve::server {

// Predicted bytes of the jobs on this server against its memory limit.
//
// Thread safety: none.
class MemoryAdmission {
 public:
  explicit MemoryAdmission(int64_t limit_bytes) : limit_(limit_bytes) {}

  // Replaces the job's prediction by `bytes`.
  //
  // Errors:
  //   kResourceExhausted  it does not fit beside the other jobs; names required
  //                       and available bytes. Nothing changes.
  absl::Status Admit(const std::string& job, int64_t bytes);
  void Release(const std::string& job);

  // 0 for an unknown job.
  int64_t predicted(const std::string& job) const;
  int64_t predicted_total() const { return total_; }
  int64_t limit() const { return limit_; }

 private:
  int64_t limit_;
  int64_t total_ = 0;
  std::map<std::string, int64_t> predicted_;
};

// Bytes of tensors that were announced or are held until their round closes or
// their answer is sent.
//
// Thread safety: none.
class StagingBudget {
 public:
  explicit StagingBudget(int64_t limit_bytes) : limit_(limit_bytes) {}

  // Errors:
  //   kResourceExhausted  `bytes` more would pass the limit; names needed,
  //                       staged and allowed bytes. Nothing changes.
  absl::Status Reserve(int64_t bytes);
  // Keeps part of what a reservation that was just released covered.
  void Hold(int64_t bytes) { staged_ += bytes; }
  void Release(int64_t bytes) { staged_ -= bytes; }
  int64_t staged() const { return staged_; }

 private:
  int64_t limit_;
  int64_t staged_ = 0;
};

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_ADMISSION_H_
