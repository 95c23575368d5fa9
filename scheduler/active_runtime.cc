#include "scheduler/active_runtime.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace kronserve::scheduler {

void ActiveRuntime::Lead(std::shared_ptr<SchedulerRuntime> runtime,
                         const std::string& address, absl::Time until) {
  MutexLock lock(&mu_);
  runtime_ = std::move(runtime);
  leader_ = address;
  until_ = until;
}

void ActiveRuntime::Follow(const std::string& leader) {
  MutexLock lock(&mu_);
  runtime_ = nullptr;
  leader_ = leader;
}

std::string ActiveRuntime::leader() const {
  MutexLock lock(&mu_);
  const bool over = runtime_ != nullptr && clock_.Now() >= until_;
  return over ? "" : leader_;
}

std::shared_ptr<SchedulerRuntime> ActiveRuntime::Leading() const {
  MutexLock lock(&mu_);
  return clock_.Now() < until_ ? runtime_ : nullptr;
}

absl::Status ActiveRuntime::NotLeading() const {
  const std::string address = leader();
  if (address.empty()) {
    return absl::UnavailableError("no scheduler leads just now");
  }
  absl::Status status = absl::UnavailableError(
      absl::StrCat("this scheduler follows, the leader is at ", address));
  status.SetPayload(kLeaderPayload, absl::Cord(address));
  return status;
}

}  // namespace kronserve::scheduler
