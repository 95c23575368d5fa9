#include "tests/simulation/network.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace kronserve::simulation {
namespace {

// Ended calls are swept out once there are this many.
constexpr size_t kSweep = 256;

}  // namespace

void Network::Listen(const std::string& address, Endpoint* endpoint) {
  listening_[address] = endpoint;
  silent_.erase(address);
}

void Network::Unlisten(const std::string& address) {
  listening_.erase(address);
}

void Network::Cut(const std::string& from, const std::string& to) {
  cuts_.insert({from, to});
}

void Network::Heal(const std::string& from, const std::string& to) {
  cuts_.erase({from, to});
}

bool Network::IsCut(const std::string& from, const std::string& to) const {
  if (cuts_.empty()) return false;
  return cuts_.count({from, to}) > 0 || cuts_.count({from, "*"}) > 0 ||
         cuts_.count({"*", to}) > 0;
}

absl::Duration Network::Latency() {
  if (random_.Chance(weather_.late)) {
    return random_.Between(weather_.slowest, weather_.latest);
  }
  return random_.Between(weather_.fastest, weather_.slowest);
}

CallPtr Network::Begin(const ProcessPtr& caller, const std::string& to,
                       absl::Duration timeout, const AtCallee& at_callee,
                       std::function<void(const absl::Status&)> fail) {
  Forget();
  auto call = std::make_shared<Call>();
  call->from = caller->name();
  call->to = to;
  call->deadline = queue_.now() + std::max(timeout, absl::ZeroDuration());
  call->caller_ = caller;
  call->fail_ = std::move(fail);
  call->last_message_ = queue_.now();
  calls_.push_back(call);
  queue_.At(call->deadline, caller, [call] {
    if (call->ended_) return;
    call->ended_ = true;
    call->fail_(absl::DeadlineExceededError(
        absl::StrCat("no answer from ", call->to, " in time")));
  });
  SendRequest(call, at_callee);
  return call;
}

void Network::SendRequest(const CallPtr& call, const AtCallee& at_callee) {
  if (IsCut(call->from, call->to) || random_.Chance(weather_.lost)) {
    call->broken_ = true;
    return;
  }
  if (random_.Chance(weather_.reset)) {
    call->broken_ = true;
    FailLater(call, absl::UnavailableError("connection reset"));
    return;
  }
  queue_.After(Latency(), nullptr,
               [this, call, at_callee] { Deliver(call, at_callee); });
  if (random_.Chance(weather_.repeated)) {
    auto ghost = std::make_shared<Call>(*call);
    ghost->ended_ = true;
    calls_.push_back(ghost);
    queue_.After(Latency(), nullptr,
                 [this, ghost, at_callee] { Deliver(ghost, at_callee); });
  }
}

void Network::Deliver(const CallPtr& call, const AtCallee& at_callee) {
  if (IsCut(call->from, call->to) || silent_.count(call->to) > 0) {
    call->broken_ = true;
    return;
  }
  const auto found = listening_.find(call->to);
  if (found == listening_.end()) {
    FailLater(call, absl::UnavailableError(
                        absl::StrCat("nothing listens at ", call->to)));
    return;
  }
  Endpoint* const endpoint = found->second;
  call->callee_ = endpoint->process();
  queue_.At(call->deadline, call->callee_, [this, call] { Gone(call); });
  queue_.After(absl::ZeroDuration(), call->callee_,
               [endpoint, call, at_callee] { at_callee(endpoint, call); });
}

void Network::Send(const CallPtr& call, Action at_caller) {
  if (call->ended_ || call->broken_) return;
  if (IsCut(call->to, call->from) || random_.Chance(weather_.lost)) {
    call->broken_ = true;
    return;
  }
  if (random_.Chance(weather_.reset)) {
    call->broken_ = true;
    FailLater(call, absl::UnavailableError("connection reset"));
    return;
  }
  call->last_message_ = std::max(call->last_message_, queue_.now() + Latency());
  queue_.At(call->last_message_, call->caller_,
            [call, at_caller = std::move(at_caller)] {
              if (!call->ended_) at_caller();
            });
}

void Network::End(const CallPtr& call, Action at_caller) {
  if (call->closed_) return;
  call->closed_ = true;
  Send(call, [call, at_caller = std::move(at_caller)] {
    call->ended_ = true;
    at_caller();
  });
}

void Network::FailLater(const CallPtr& call, const absl::Status& status) {
  queue_.At(std::max(call->last_message_, queue_.now() + Latency()),
            call->caller_, [this, call, status] {
              if (call->ended_ || IsCut(call->to, call->from)) return;
              call->ended_ = true;
              call->fail_(status);
            });
}

void Network::Gone(const CallPtr& call) {
  if (call->closed_) return;
  call->closed_ = true;
  if (call->on_gone != nullptr) call->on_gone();
}

void Network::Kill(const ProcessPtr& process, bool machine_too) {
  queue_.Kill(process.get());
  if (machine_too) silent_.insert(process->name());
  listening_.erase(process->name());
  if (machine_too) return;
  for (const CallPtr& call : calls_) HangUp(call, process);
}

void Network::HangUp(const CallPtr& call, const ProcessPtr& dead) {
  if (call->callee_ == dead && !call->ended_) {
    FailLater(call, absl::UnavailableError(
                        absl::StrCat(call->to, " closed the connection")));
  }
  if (call->caller_ == dead && call->callee_ != nullptr) {
    queue_.After(Latency(), call->callee_, [this, call] { Gone(call); });
  }
}

void Network::Forget() {
  if (calls_.size() < kSweep) return;
  const absl::Time now = queue_.now();
  calls_.erase(std::remove_if(calls_.begin(), calls_.end(),
                              [now](const CallPtr& call) {
                                return call->ended_ &&
                                       (call->closed_ || call->deadline < now);
                              }),
               calls_.end());
  for (const CallPtr& call : calls_) {
    if (call->deadline < now && !call->caller_->alive()) call->ended_ = true;
  }
}

}  // namespace kronserve::simulation
