// One job checkpoint while it is being written: whose files are in, and who is
// to be asked next.
//
// Layer: scheduler. May include common/, proto/ and placement/.

#ifndef KRONSERVE_SCHEDULER_CHECKPOINT_RUN_H_
#define KRONSERVE_SCHEDULER_CHECKPOINT_RUN_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "google/protobuf/repeated_field.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "scheduler/retry.h"

namespace kronserve::scheduler {

// Nothing of it is stored: owners answer a repeated question with what they
// wrote before.
//
// Thread safety: none.
class CheckpointRun {
 public:
  // `server` may be asked (again).
  bool Due(const std::string& server, absl::Time now) const;

  // It was asked.
  void Sent(const std::string& server, absl::Time now);

  // It answered; it is asked again after kFirstRetry while files are missing.
  void Wrote(
      const std::string& server,
      const google::protobuf::RepeatedPtrField<v1::CheckpointFile>& files,
      absl::Time now);

  // No answer.
  void Fail(const std::string& server, absl::Time now);

  // Since its last answer.
  int failures(const std::string& server) const;

  bool Has(int layer) const { return files_.count(layer) > 0; }
  // In layer order.
  std::vector<v1::CheckpointFile> files() const;
  int64_t num_files() const { return static_cast<int64_t>(files_.size()); }

 private:
  std::map<int, v1::CheckpointFile> files_;
  std::map<std::string, Retry> asked_;
};

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_CHECKPOINT_RUN_H_
