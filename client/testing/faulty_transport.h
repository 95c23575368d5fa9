// Loses or holds back answers of any transport.

#ifndef KRONSERVE_CLIENT_TESTING_FAULTY_TRANSPORT_H_
#define KRONSERVE_CLIENT_TESTING_FAULTY_TRANSPORT_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/transport.h"
#include "common/mutex.h"

namespace kronserve::client::testing {

// Decorates a transport with the faults that the functions ask for.
//
// Thread safety: thread-safe if the functions are.
class FaultyTransport final : public Transport {
 public:
  struct Faults {
    // The reply of `layer` in `step` is lost; its call ends as it would.
    std::function<bool(int64_t step, int layer)> drop_reply;
    // Calls to `server` in `step` vanish: neither answer nor error, as if its
    // packets were dropped. They end with kCancelled in Shutdown().
    std::function<bool(const std::string& server, int64_t step)> black_hole;
    // All of a Precondition call's answers wait for Release().
    std::function<bool(const std::string& server, int64_t step)> hold;
  };

  FaultyTransport(std::unique_ptr<Transport> inner, Faults faults)
      : inner_(std::move(inner)), faults_(std::move(faults)) {}
  ~FaultyTransport() override { Shutdown(); }

  void PushFactors(PushCall call, OnPushDone done) override {
    if (Asked(faults_.black_hole, call.target, call.header.call())) {
      return Keep([done = std::move(done)] { done(Cancelled(), {}); });
    }
    inner_->PushFactors(std::move(call), std::move(done));
  }

  void Precondition(PreconditionCall call, OnLayer on_layer,
                    OnDone done) override {
    const v1::CallHeader& header = call.header.call();
    if (Asked(faults_.black_hole, call.target, header)) {
      return Keep([done = std::move(done)] { done(Cancelled()); });
    }
    if (Asked(faults_.hold, call.target, header)) {
      on_layer = Held(std::move(on_layer));
      done = Held(std::move(done));
    }
    if (faults_.drop_reply != nullptr) {
      on_layer = Dropped(header.step(), std::move(on_layer));
    }
    inner_->Precondition(std::move(call), std::move(on_layer), std::move(done));
  }

  // Delivers what is held, in order.
  void Release() ABSL_LOCKS_EXCLUDED(mu_) { Run(&held_); }

  void Shutdown() override ABSL_LOCKS_EXCLUDED(mu_) {
    inner_->Shutdown();
    Run(&held_);
    Run(&swallowed_);
  }

 private:
  using Actions = std::vector<std::function<void()>>;

  static CallEnd Cancelled() {
    return {absl::CancelledError("the transport was shut down"), {}};
  }
  static bool Asked(
      const std::function<bool(const std::string&, int64_t)>& fault,
      const Target& target, const v1::CallHeader& call) {
    return fault != nullptr && fault(target.server, call.step());
  }
  OnLayer Held(OnLayer on_layer) {
    return [this, on_layer = std::move(on_layer)](LayerAnswer answer) {
      Hold([on_layer, answer = std::move(answer)] { on_layer(answer); });
    };
  }
  OnDone Held(OnDone done) {
    return [this, done = std::move(done)](const CallEnd& end) {
      Hold([done, end] { done(end); });
    };
  }
  OnLayer Dropped(int64_t step, OnLayer on_layer) {
    return [this, step, on_layer = std::move(on_layer)](LayerAnswer answer) {
      if (faults_.drop_reply(step, answer.reply.layer())) return;
      on_layer(std::move(answer));
    };
  }
  void Hold(std::function<void()> action) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    held_.push_back(std::move(action));
  }
  void Keep(std::function<void()> action) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    swallowed_.push_back(std::move(action));
  }
  void Run(Actions* actions) ABSL_LOCKS_EXCLUDED(mu_) {
    Actions now;
    {
      MutexLock lock(&mu_);
      now.swap(*actions);
    }
    for (const auto& action : now) action();
  }

  const std::unique_ptr<Transport> inner_;
  const Faults faults_;
  Mutex mu_;
  Actions held_ ABSL_GUARDED_BY(mu_);
  Actions swallowed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kronserve::client::testing

#endif  // KRONSERVE_CLIENT_TESTING_FAULTY_TRANSPORT_H_
