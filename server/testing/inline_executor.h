// Runs a core's tasks at once, on the caller's thread, and keeps its answers.
// What leaves the process (transfers, checkpoints) is kept for the test.

#ifndef KRONSERVE_SERVER_TESTING_INLINE_EXECUTOR_H_
#define KRONSERVE_SERVER_TESTING_INLINE_EXECUTOR_H_

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/check.h"
#include "server/server_core.h"

namespace kronserve::server::testing {

// Merges and refreshes may be held back, and refreshes made to fail.
class InlineExecutor {
 public:
  explicit InlineExecutor(ServerCore* core) : core_(core) {
    auto tools = CreateTaskTools(linalg::Device::kReference);
    KRONSERVE_CHECK(tools.ok(), std::string(tools.status().message()));
    tools_ = *std::move(tools);
  }

  void Run(Effects effects, absl::Time now) {
    Take(std::move(effects));
    while (RunOne(now)) {
    }
  }

  void HoldMerges(bool hold) { hold_merges_ = hold; }
  void HoldRefreshes(bool hold) { hold_refreshes_ = hold; }
  void FailRefreshes(bool fail) { fail_refreshes_ = fail; }

  size_t held_refreshes() const { return refreshes_.size(); }
  const Reply* Find(uint64_t request) const {
    const auto it = replies_.find(request);
    return it == replies_.end() ? nullptr : &it->second;
  }
  const std::vector<std::string>& warnings() const { return warnings_; }
  bool behind() const { return behind_; }

  std::vector<TransferTask> TakeTransfers() {
    return std::exchange(transfers_, {});
  }
  std::vector<RestoreTask> TakeRestores() {
    return std::exchange(restores_, {});
  }
  std::vector<CheckpointTask> TakeCheckpoints() {
    return std::exchange(checkpoints_, {});
  }
  std::vector<ForgetTask> TakeForgets() { return std::exchange(forgets_, {}); }

 private:
  void Take(Reply reply) {
    const uint64_t request = reply.request;
    const bool is_first = replies_.emplace(request, std::move(reply)).second;
    KRONSERVE_CHECK(is_first, "a request was answered twice");
  }

  void Take(Effects effects) {
    for (auto& task : effects.merges) merges_.push_back(std::move(task));
    for (auto& task : effects.refreshes) refreshes_.push_back(std::move(task));
    for (auto& task : effects.preconditions) {
      preconditions_.push_back(std::move(task));
    }
    for (Reply& reply : effects.replies) Take(std::move(reply));
    for (std::string& warning : effects.warnings) {
      warnings_.push_back(std::move(warning));
    }
    for (auto& task : effects.transfers) transfers_.push_back(std::move(task));
    for (auto& task : effects.restores) restores_.push_back(std::move(task));
    for (auto& task : effects.checkpoints) {
      checkpoints_.push_back(std::move(task));
    }
    for (auto& task : effects.forgets) forgets_.push_back(std::move(task));
    behind_ = behind_ || effects.behind;
  }

  bool RunOne(absl::Time now) {
    Effects effects;
    if (!preconditions_.empty()) {
      const PreconditionTask task = std::move(preconditions_.front());
      preconditions_.pop_front();
      core_->FinishPrecondition(task.request,
                                RunPrecondition(tools_, task.input), &effects);
    } else if (!merges_.empty() && !hold_merges_) {
      const MergeTask task = std::move(merges_.front());
      merges_.pop_front();
      core_->FinishMerge(task.key, RunMerge(task.input), now, &effects);
    } else if (!refreshes_.empty() && !hold_refreshes_) {
      const RefreshTask task = std::move(refreshes_.front());
      refreshes_.pop_front();
      absl::StatusOr<curvature::Factorization<float>> result =
          absl::FailedPreconditionError("made to fail");
      if (!fail_refreshes_) result = RunRefresh(tools_, task.input);
      core_->FinishRefresh(task.key, std::move(result), now, &effects);
    } else {
      return false;
    }
    Take(std::move(effects));
    return true;
  }

  ServerCore* const core_;
  TaskTools tools_;
  bool hold_merges_ = false;
  bool hold_refreshes_ = false;
  bool fail_refreshes_ = false;
  std::deque<MergeTask> merges_;
  std::deque<RefreshTask> refreshes_;
  std::deque<PreconditionTask> preconditions_;
  std::map<uint64_t, Reply> replies_;
  std::vector<TransferTask> transfers_;
  std::vector<RestoreTask> restores_;
  std::vector<CheckpointTask> checkpoints_;
  std::vector<ForgetTask> forgets_;
  std::vector<std::string> warnings_;
  bool behind_ = false;
};

}  // namespace kronserve::server::testing

#endif  // KRONSERVE_SERVER_TESTING_INLINE_EXECUTOR_H_
