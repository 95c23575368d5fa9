// Calls between simulated processes over a network that misbehaves.
//
// Layer: tests.
// A call is a request, any number of messages back, and an end. Messages of
// one call keep their order, as on one connection; calls overtake one another.

#ifndef KRONSERVE_TESTS_SIMULATION_NETWORK_H_
#define KRONSERVE_TESTS_SIMULATION_NETWORK_H_

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/random.h"

namespace kronserve::simulation {

// How a message fares, each with its chance.
struct NetworkWeather {
  absl::Duration fastest = absl::Microseconds(100);
  absl::Duration slowest = absl::Milliseconds(3);
  double lost = 0;      // The rest of the call vanishes without a word.
  double reset = 0;     // The call ends at once, UNAVAILABLE.
  double repeated = 0;  // The request comes twice.
  double late = 0;      // It takes up to `latest`.
  absl::Duration latest = absl::Milliseconds(600);
};

// What listens at an address.
class Endpoint {
 public:
  explicit Endpoint(ProcessPtr process) : process_(std::move(process)) {}
  virtual ~Endpoint() = default;
  const ProcessPtr& process() const { return process_; }

 private:
  const ProcessPtr process_;
};

// One call under way.
struct Call {
  std::string from;
  std::string to;
  absl::Time deadline;
  // Run at the callee when nobody wants an answer any more: the deadline has
  // passed, or the caller died. Set by the callee.
  Action on_gone;

 private:
  friend class Network;
  ProcessPtr caller_;
  ProcessPtr callee_;  // Null before the request arrives.
  std::function<void(const absl::Status&)> fail_;
  absl::Time last_message_;
  bool ended_ = false;   // The caller has its end.
  bool closed_ = false;  // The callee has sent its end, or was told to stop.
  bool broken_ = false;  // Nothing gets through any more.
};
using CallPtr = std::shared_ptr<Call>;

// Thread safety: none.
// Lifetime:      endpoints stay until Unlisten() or Kill().
class Network {
 public:
  using AtCallee = std::function<void(Endpoint*, const CallPtr&)>;

  Network(EventQueue* queue, Random* random)
      : queue_(*queue), random_(*random) {}

  void SetWeather(const NetworkWeather& weather) { weather_ = weather; }

  void Listen(const std::string& address, Endpoint* endpoint);
  void Unlisten(const std::string& address);

  // Starts a call. `at_callee` runs there when the request arrives, twice if it
  // was repeated; `fail` runs at the caller when the call ends without an end
  // of the callee's.
  CallPtr Begin(const ProcessPtr& caller, const std::string& to,
                absl::Duration timeout, const AtCallee& at_callee,
                std::function<void(const absl::Status&)> fail);
  // Sends a message back; with End() the last one.
  void Send(const CallPtr& call, Action at_caller);
  void End(const CallPtr& call, Action at_caller);

  // Nothing goes from `from` to `to` any more; "*" is everybody.
  void Cut(const std::string& from, const std::string& to);
  void Heal(const std::string& from, const std::string& to);
  void HealAll() { cuts_.clear(); }

  // The process dies. Its peers are told so by their kernel, or, when the whole
  // machine went, by nobody: then its address answers nothing until something
  // listens there again.
  void Kill(const ProcessPtr& process, bool machine_too);

 private:
  bool IsCut(const std::string& from, const std::string& to) const;
  absl::Duration Latency();
  void SendRequest(const CallPtr& call, const AtCallee& at_callee);
  void Deliver(const CallPtr& call, const AtCallee& at_callee);
  void FailLater(const CallPtr& call, const absl::Status& status);
  void Gone(const CallPtr& call);
  // The other end of the call, if `dead` is one of its ends, hears of it.
  void HangUp(const CallPtr& call, const ProcessPtr& dead);
  void Forget();

  EventQueue& queue_;
  Random& random_;
  NetworkWeather weather_;
  std::map<std::string, Endpoint*> listening_;
  std::set<std::string> silent_;
  std::set<std::pair<std::string, std::string>> cuts_;
  std::vector<CallPtr> calls_;
};

}  // namespace kronserve::simulation

#endif  // KRONSERVE_TESTS_SIMULATION_NETWORK_H_
