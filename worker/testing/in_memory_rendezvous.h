// A Rendezvous for ranks that are threads of one test.
//
// Layer: worker; included by tests only.

#ifndef KRONSERVE_WORKER_TESTING_IN_MEMORY_RENDEZVOUS_H_
#define KRONSERVE_WORKER_TESTING_IN_MEMORY_RENDEZVOUS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "worker/collective/communicator.h"

namespace kronserve::worker::testing {

// Thread safety: thread-safe.
class InMemoryRendezvous final : public Rendezvous {
 public:
  absl::Status Put(const std::string& key, const std::string& value) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    values_[key] = value;
    changed_.NotifyAll();
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> Get(
      const std::vector<std::string>& keys, absl::Duration timeout) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::Time deadline = SteadyClock().Now() + timeout;
    MutexLock lock(&mu_);
    std::vector<std::string> found;
    for (const std::string& key : keys) {
      if (!WaitForLocked(key, deadline)) {
        return absl::DeadlineExceededError(
            absl::StrCat("key '", key, "' did not come within ",
                         absl::FormatDuration(timeout)));
      }
      found.push_back(values_[key]);
    }
    return found;
  }

 private:
  bool WaitForLocked(const std::string& key, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    while (values_.count(key) == 0) {
      const absl::Duration left = deadline - SteadyClock().Now();
      if (left <= absl::ZeroDuration()) return false;
      changed_.WaitFor(&mu_, left);
    }
    return true;
  }

  Mutex mu_;
  CondVar changed_;
  std::map<std::string, std::string> values_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kronserve::worker::testing

#endif  // KRONSERVE_WORKER_TESTING_IN_MEMORY_RENDEZVOUS_H_
