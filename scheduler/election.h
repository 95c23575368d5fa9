// How one of several schedulers comes to lead.
//
// Layer: scheduler. May include common/, proto/ and placement/.

#ifndef KRONSERVE_SCHEDULER_ELECTION_H_
#define KRONSERVE_SCHEDULER_ELECTION_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "scheduler/state_store.h"

namespace kronserve::scheduler {

// Thread safety: none; one thread uses it at a time.
class Election {
 public:
  virtual ~Election() = default;

  // As StateStore::Describe() of the store that the leader gets.
  virtual std::string Describe() const = 0;

  struct Result {
    // This process leads until then, by the clock that the election was made
    // with, counted from before the renewal was sent; InfinitePast: it does
    // not lead.
    absl::Time leads_until = absl::InfinitePast();
    // Where the leader listens; empty when nobody leads just now.
    std::string leader;
    // Another number, another leadership: the store has to be opened again.
    int64_t leadership = 0;
  };

  // Becomes the leader if nobody is, or renews that it is. Call it a few times
  // within a lease. Blocks for some seconds when it cannot reach the others.
  //
  //   address  where members reach this scheduler.
  //
  // Errors:
  //   kUnavailable  not known who leads; an earlier `leads_until` still holds.
  virtual absl::StatusOr<Result> Campaign(const std::string& address) = 0;

  // The store of the leadership that Campaign() returned last. Writes of a
  // store whose leadership has ended fail.
  virtual std::unique_ptr<StateStore> OpenStore() = 0;

  // Gives leadership up, so that another need not wait for its end.
  virtual void Resign() = 0;
};

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_ELECTION_H_
