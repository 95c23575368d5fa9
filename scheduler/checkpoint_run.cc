#include "scheduler/checkpoint_run.h"

namespace kronserve::scheduler {

bool CheckpointRun::Due(const std::string& server, absl::Time now) const {
  const auto found = asked_.find(server);
  return found == asked_.end() || found->second.Due(now);
}

void CheckpointRun::Sent(const std::string& server, absl::Time now) {
  asked_[server].Sent(now);
}

void CheckpointRun::Wrote(
    const std::string& server,
    const google::protobuf::RepeatedPtrField<v1::CheckpointFile>& files,
    absl::Time now) {
  for (const v1::CheckpointFile& file : files) files_[file.layer()] = file;
  asked_[server].Succeeded(now + kFirstRetry);
}

void CheckpointRun::Fail(const std::string& server, absl::Time now) {
  asked_[server].Failed(now);
}

int CheckpointRun::failures(const std::string& server) const {
  const auto found = asked_.find(server);
  return found == asked_.end() ? 0 : found->second.failures();
}

std::vector<v1::CheckpointFile> CheckpointRun::files() const {
  std::vector<v1::CheckpointFile> files;
  for (const auto& [layer, file] : files_) files.push_back(file);
  return files;
}

}  // namespace kronserve::scheduler
