// One rank's traffic with the servers in one step, as a state machine.
//
// Layer: client. May include proto/ and common/.
// Knows no transport, thread or clock: messages and times go in, calls to make
// come out. client.cc drives it.

#ifndef KRONSERVE_CLIENT_STEP_CORE_H_
#define KRONSERVE_CLIENT_STEP_CORE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/routing_table.h"
#include "client/suspects.h"
#include "client/transport.h"
#include "common/backoff.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "proto/tensor_chunks.h"

namespace kronserve::client {

struct Contribution {
  v1::ContributionItem item;
  Tensor values;  // Packed upper triangle; null without data.
};

struct Gradient {
  v1::GradientItem item;
  Tensor values;  // [rows, cols]
};

// What a rank has for the service in one step.
struct StepRequest {
  int64_t step = 0;
  // True at a factor step: every owner gets this rank's commit or void, also
  // one for which it has no gradient.
  bool ends_everywhere = false;
  std::string void_reason;  // Not empty: the step ends void.
  double damping = 0;
  double factor_decay = 0;
  std::vector<Contribution> contributions;
  std::vector<Gradient> gradients;
};

struct StepAnswer {
  std::vector<LayerAnswer> layers;   // One per gradient of the request.
  std::vector<std::string> refused;  // Contributions that were not taken.
};

struct StepContext {
  v1::CallHeader call;  // All but step and epoch.
  absl::Duration budget;
  RoutingTable* routing = nullptr;
  Suspects* suspects = nullptr;
};

struct StepEffects {
  struct Push {
    uint64_t id;  // To be given back with whatever the call brings.
    PushCall call;
  };
  struct Precondition {
    uint64_t id;
    PreconditionCall call;
  };
  std::vector<Push> pushes;
  std::vector<Precondition> preconditions;
};

// The step's calls run in lanes: one server's push, and after it has ended the
// call that ends the step there and brings the gradients (a commit before the
// push would end the step without its factors).
//
//            push OK, refused, or half the budget spent
//     push ---------------------------------------------> precondition --> end
//       |                                                  |
//       +---- ABORTED and a newer assignment is held, or --+--> new lanes to
//       |     the layer has another owner at a later step  |    the owners
//       +---- UNAVAILABLE, RESOURCE_EXHAUSTED, DATA_LOSS --+--> the same call
//             again after a backoff: same identity, so it cannot count twice
//
// One budget covers all lanes and retries. Calls end a little before it
// (a tenth, at most 0.1 s), so that the answer a server gives just before its
// deadline still counts.
//
// Moves: before from_step the source answers. When it has handed the layer over
// (ABORTED again, by the same assignment), the new owner has the whole state
// and answers for earlier steps too: a lost reply is fetched there.
//
// Suspects: a server whose lane used up the budget, whatever it said last, is
// a suspect. Its layers fall back at once in later steps, and its lane becomes
// an unwaited probe once a second. Any answer that does not ask to retry is a
// sign of life, which the ranks share (silent_owners.h). So a server that is
// starting up, or that was restarted in time, is waited for within the budget,
// and one that is gone costs one budget. A server that a late re-routing left
// less than half of the budget is not suspected.
//
// Thread safety: none.
// Lifetime:      the routing table and suspects outlive it. Answers to calls
//                may be given to it after done(): they only tell that a server
//                lives.
class StepCore {
 public:
  StepCore(StepRequest request, const StepContext& context);

  // Starts the step; called once, first.
  StepEffects Begin(absl::Time now);

  // A call of an earlier effect brought something. Unknown ids are ignored.
  StepEffects OnPushDone(uint64_t id, const CallEnd& end,
                         const v1::PushFactorsResponse& response,
                         absl::Time now);
  StepEffects OnLayer(uint64_t id, LayerAnswer answer, absl::Time now);
  StepEffects OnPreconditionDone(uint64_t id, const CallEnd& end,
                                 absl::Time now);

  // The routing table adopted an assignment from elsewhere: layers whose old
  // owner does not answer go to the new one, or fall back if that one starts
  // at a later step.
  StepEffects OnAssignment(absl::Time now);

  // The world of the call is over: what has no answer yet falls back at once.
  // Also before Begin(), which is not called then.
  void Abandon(const absl::Status& why);

  // Time has passed; call at next_wake().
  StepEffects Tick(absl::Time now);
  absl::Time next_wake() const;

  // True when every layer has an answer and nothing waited for is left.
  bool done() const;

  // Once, when done().
  StepAnswer TakeAnswer() { return std::move(answer_); }

 private:
  enum class Stage { kPush, kPrecondition, kEnded };
  struct Items {
    std::vector<size_t> contributions;  // Positions in the request.
    std::vector<size_t> gradients;
  };
  struct Lane {
    explicit Lane(Backoff backoff) : backoff(backoff) {}
    std::string server;
    uint64_t epoch = 0;
    Items items;
    bool waited = true;      // False: a probe.
    bool had_time = true;    // At least half of the budget.
    bool pushed = false;     // The server answered for the contributions.
    bool delivered = false;  // The server took the commit.
    Stage stage = Stage::kPush;
    uint64_t call = 0;  // In flight; 0: none.
    absl::Time push_deadline;
    absl::Time call_deadline;
    absl::Time deadline;
    absl::Time retry_at = absl::InfiniteFuture();
    absl::Status last;  // Why it is being retried.
    Backoff backoff;
  };

  Lane* Find(uint64_t call);
  bool Committed(const std::string& server) const;
  std::string Route(int layer, uint64_t epoch,
                    const std::vector<int>& handed_over) const;
  // `handed_over`: layers that their owner at this step does not answer any
  // more: the newest owner has them.
  void OpenLanes(uint64_t epoch, const Items& items,
                 const std::vector<int>& handed_over, absl::Time now,
                 StepEffects* effects);
  void OpenLane(const std::string& server, uint64_t epoch, const Items& items,
                absl::Time now, StepEffects* effects);
  bool WasAsked(const std::string& server) const;
  void Send(Lane* lane, absl::Time now, StepEffects* effects);
  void SendPush(const Lane& lane, absl::Time now, StepEffects* effects);
  void SendPrecondition(const Lane& lane, absl::Time now, StepEffects* effects);
  v1::CallHeader Header(const Lane& lane) const;
  void Precondition(Lane* lane, absl::Time now, StepEffects* effects);
  void Heard(Lane* lane, const CallEnd& end);
  bool Reroutable(const Lane& lane, const CallEnd& end) const;
  void Reroute(size_t lane, const std::vector<int>& elsewhere, absl::Time now,
               StepEffects* effects);
  void RetryLater(Lane* lane, const absl::Status& status, absl::Time now);
  void GiveUp(Lane* lane, const absl::Status& status);
  void GiveUpLeaving(const Lane& lane);
  void Spent(Lane* lane, absl::Time now);
  void TickLane(Lane* lane, absl::Time now, StepEffects* effects);
  void FallBack(const std::vector<size_t>& gradients, v1::FallbackReason reason,
                const std::string& message);
  void NoteRefused(const Lane& lane, const v1::PushFactorsResponse& response);
  void NoteNotPushed(const Lane& lane, const absl::Status& status);

  const StepRequest request_;
  const StepContext context_;
  std::vector<Lane> lanes_;
  uint64_t next_call_ = 1;
  absl::Time begin_;
  std::vector<bool> answered_;  // Per gradient.
  StepAnswer answer_;
};

}  // namespace kronserve::client

#endif  // KRONSERVE_CLIENT_STEP_CORE_H_
