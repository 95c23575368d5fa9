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
                       absl::Duration timeout, AtCallee at_callee,
                       std::function<void(const absl::Status&)> fail) {
  Forget();
  auto call = std::make_shared<Call>();
  call->from = caller->name();
  call->to = to;
  call->deadline = queue_.now() + std::max(timeout, absl::ZeroDuration());
  call->caller = caller;
  call->fail = std::move(fail);
  call->last_message = queue_.now();
  calls_.push_back(call);
  queue_.At(call->deadline, caller, [call] {
    if (call->ended) return;
    call->ended = true;
    call->fail(absl::DeadlineExceededError(
        absl::StrCat("no answer from ", call->to, " in time")));
  });
  if (IsCut(call->from, to) || random_.Chance(weather_.lost)) {
    call->broken = true;
  } else if (random_.Chance(weather_.reset)) {
    call->broken = true;
    FailLater(call, absl::UnavailableError("connection reset"));
  } else {
    queue_.After(Latency(), nullptr,
                 [this, call, at_callee] { Deliver(call, at_callee); });
    if (random_.Chance(weather_.repeated)) {
      auto ghost = std::make_shared<Call>(*call);
      ghost->ended = true;
      calls_.push_back(ghost);
      queue_.After(Latency(), nullptr,
                   [this, ghost, at_callee] { Deliver(ghost, at_callee); });
    }
  }
  return call;
}

void Network::Deliver(const CallPtr& call, const AtCallee& at_callee) {
  if (IsCut(call->from, call->to) || silent_.count(call->to) > 0) {
    call->broken = true;
    return;
  }
  const auto found = listening_.find(call->to);
  if (found == listening_.end()) {
    FailLater(call, absl::UnavailableError(
                        absl::StrCat("nothing listens at ", call->to)));
    return;
  }
  Endpoint* const endpoint = found->second;
  call->callee = endpoint->process();
  queue_.At(call->deadline, call->callee, [this, call] { Gone(call); });
  queue_.After(absl::ZeroDuration(), call->callee,
               [endpoint, call, at_callee] { at_callee(endpoint, call); });
}

void Network::Send(const CallPtr& call, Action at_caller) {
  if (call->ended || call->broken) return;
  if (IsCut(call->to, call->from) || random_.Chance(weather_.lost)) {
    call->broken = true;
    return;
  }
  if (random_.Chance(weather_.reset)) {
    call->broken = true;
    FailLater(call, absl::UnavailableError("connection reset"));
    return;
  }
  call->last_message = std::max(call->last_message, queue_.now() + Latency());
  queue_.At(call->last_message, call->caller,
            [call, at_caller = std::move(at_caller)] {
              if (!call->ended) at_caller();
            });
}

void Network::End(const CallPtr& call, Action at_caller) {
  if (call->closed) return;
  call->closed = true;
  Send(call, [call, at_caller = std::move(at_caller)] {
    call->ended = true;
    at_caller();
  });
}

void Network::FailLater(const CallPtr& call, const absl::Status& status) {
  queue_.At(std::max(call->last_message, queue_.now() + Latency()),
            call->caller, [this, call, status] {
              if (call->ended || IsCut(call->to, call->from)) return;
              call->ended = true;
              call->fail(status);
            });
}

void Network::Gone(const CallPtr& call) {
  if (call->closed) return;
  call->closed = true;
  if (call->on_gone != nullptr) call->on_gone();
}

void Network::Kill(const ProcessPtr& process, bool machine_too) {
  queue_.Kill(process.get());
  if (machine_too) silent_.insert(process->name());
  listening_.erase(process->name());
  if (machine_too) return;
  for (const CallPtr& call : calls_) {
    if (call->callee == process && !call->ended) {
      FailLater(call, absl::UnavailableError(
                          absl::StrCat(call->to, " closed the connection")));
    }
    if (call->caller == process && call->callee != nullptr) {
      queue_.After(Latency(), call->callee, [this, call] { Gone(call); });
    }
  }
}

void Network::Forget() {
  if (calls_.size() < kSweep) return;
  const absl::Time now = queue_.now();
  calls_.erase(std::remove_if(calls_.begin(), calls_.end(),
                              [now](const CallPtr& call) {
                                return call->ended &&
                                       (call->closed || call->deadline < now);
                              }),
               calls_.end());
  for (const CallPtr& call : calls_) {
    if (call->deadline < now && !call->caller->alive()) call->ended = true;
  }
}

}  // namespace kronserve::simulation
