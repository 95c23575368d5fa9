// Which servers there are, and which of them live.
//
// Layer: scheduler. May include common/, proto/ and placement/.

#ifndef KRONSERVE_SCHEDULER_MEMBERSHIP_H_
#define KRONSERVE_SCHEDULER_MEMBERSHIP_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kronserve/v1/job.pb.h"
#include "kronserve/v1/scheduler.pb.h"
#include "placement/cost_curve.h"

namespace kronserve::scheduler {

struct LeaseOptions {
  // Members renew this often.
  absl::Duration heartbeat = absl::Seconds(1);
  // How long the member counts on a renewal it has sent; at least 3
  // heartbeats.
  absl::Duration lease = absl::Seconds(5);

  // How long we count on a renewal we have received: one heartbeat more, so
  // that the member's view ends first (PROTOCOL.md 5).
  absl::Duration validity() const { return lease + heartbeat; }

  // Silence after which a member is suspect. The half keeps a punctual one from
  // flickering.
  absl::Duration patience() const { return 2.5 * heartbeat; }
};

//            Register                     lease over
//   (none) -----------> ALIVE <-> SUSPECT -----------> DEAD --(1 h)--> (none)
//                         ^     2 heartbeats missed     |
//                         +---- heartbeat, Register ----+
struct ServerMember {
  v1::ServerAddress address;
  // False for a server that is known from before our restart only.
  bool registered = false;
  // Known, but asked to register anew.
  bool must_register = false;
  bool dead = false;
  // It has asked to be drained: it wants to stop.
  bool wants_drain = false;
  // It was told that nothing is left on it: it goes, and its name is free.
  bool may_leave = false;
  int64_t memory_bytes = 0;
  int64_t refresh_threads = 1;
  placement::CostCurve curve;
  v1::ServerLoad load;
  v1::StateRecovery state_recovery = v1::STATE_RECOVERY_UNSPECIFIED;
  std::string state_recovery_message;
  absl::Time last_heard;
  absl::Time lease_end;

  // It can own layers.
  bool usable() const { return registered && !must_register && !dead; }
};

// The servers by name.
//
// Thread safety: none.
// Invariants:    one process per name; `dead` changes in Expire() and when a
//                dead one is heard of again, so its layers move only then.
class Membership {
 public:
  explicit Membership(const LeaseOptions& options) : options_(options) {}

  struct Registration {
    // This incarnation has not registered here before.
    bool is_new = false;
    // Another incarnation had the name: what it held is lost.
    bool replaced = false;
    // It has no share of the layers: it is not one that we expected.
    bool joined = false;
  };

  // Errors:
  //   kInvalidArgument  empty or long name, address that is not host:port,
  //                     zero incarnation, no memory, a cost curve that is not
  //                     finite and at least 0; every fault is named.
  //   kAlreadyExists    a live server holds the name at another address, and
  //                     was not told that it may leave. A higher incarnation
  //                     number proves nothing, and an address that does not
  //                     answer us may answer others: the lease decides.
  absl::StatusOr<Registration> Register(
      const v1::RegisterServerRequest& request, absl::Time now);

  // Errors:
  //   kNotFound  the server is unknown here and has to register.
  //   kAborted   another incarnation holds the name.
  absl::Status Heartbeat(const v1::ServerHeartbeatRequest& request,
                         absl::Time now);

  // Adds a server that an earlier run knew, with one fresh lease.
  void Expect(const v1::ServerAddress& server, absl::Time now);

  // The server's next heartbeat is answered kNotFound: it shall register anew.
  void RequireRegistration(const std::string& name);

  // Names whose lease ended since the last call; forgets what is long dead.
  std::vector<std::string> Expire(absl::Time now);

  // Drained by hand: outlives processes, until undone.
  void SetDrained(const std::string& name, bool drained);
  bool drained_by_hand(const std::string& name) const {
    return drained_.count(name) > 0;
  }
  // By hand or because it asked.
  bool draining(const std::string& name) const;
  // Names that new layers can be placed on.
  std::vector<std::string> Placeable() const;

  // Notes what the server is told: whether it may leave.
  void SetMayLeave(const std::string& name, bool may_leave);

  // All leases last longer by `by`: we were the ones who were late.
  void ExtendLeases(absl::Duration by);

  // Servers that have a lease but have not registered (again) yet.
  std::vector<std::string> Awaited() const;

  bool AnySuspect(absl::Time now) const;
  bool AnyUsable() const;

  // Null when unknown. The pointer is good until the next non-const call.
  const ServerMember* Find(const std::string& name) const;
  const std::map<std::string, ServerMember>& members() const {
    return members_;
  }

  v1::MemberState StateOf(const ServerMember& member, absl::Time now) const;

 private:
  const LeaseOptions options_;
  std::map<std::string, ServerMember> members_;
  std::set<std::string> drained_;
};

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_MEMBERSHIP_H_
