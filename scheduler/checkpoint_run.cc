#include "scheduler/checkpoint_run.h"

#include <algorithm>

namespace kronserve::scheduler {
namespace {

constexpr absl::Duration kAttemptTimeout = absl::Seconds(10);
constexpr absl::Duration kAskAgain = absl::Milliseconds(250);
constexpr int kMostDoublings = 3;

}  // namespace

bool CheckpointRun::Due(const std::string& server, absl::Time now) const {
  const auto found = asked_.find(server);
  return found == asked_.end() || now >= found->second.next_try;
}

void CheckpointRun::Sent(const std::string& server, absl::Time now) {
  asked_[server].next_try = now + kAttemptTimeout;
}

void CheckpointRun::Wrote(
    const std::string& server,
    const google::protobuf::RepeatedPtrField<v1::CheckpointFile>& files,
    absl::Time now) {
  for (const v1::CheckpointFile& file : files) files_[file.layer()] = file;
  asked_[server] = {now + kAskAgain, 0};
}

void CheckpointRun::Fail(const std::string& server, absl::Time now) {
  Asked& asked = asked_[server];
  asked.next_try =
      now + kAskAgain * (1 << std::min(asked.failures, kMostDoublings));
  ++asked.failures;
}

int CheckpointRun::failures(const std::string& server) const {
  const auto found = asked_.find(server);
  return found == asked_.end() ? 0 : found->second.failures;
}

std::vector<v1::CheckpointFile> CheckpointRun::files() const {
  std::vector<v1::CheckpointFile> files;
  for (const auto& [layer, file] : files_) files.push_back(file);
  return files;
}

}  // namespace kronserve::scheduler
