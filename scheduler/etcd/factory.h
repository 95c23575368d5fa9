// Election and durable state of several schedulers, in etcd (v3 API).
//
// Keys, all below a prefix:
//   leader   address of the leader, on its lease; its create-revision is the
//            term
//   writes   changed by every write, so that a delayed one is not done late
//   state/K  the value of key K

#ifndef KRONSERVE_SCHEDULER_ETCD_FACTORY_H_
#define KRONSERVE_SCHEDULER_ETCD_FACTORY_H_

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/clock.h"
#include "scheduler/election.h"

namespace kronserve::scheduler::etcd {

struct EtcdOptions {
  // host:port of members, comma-separated.
  std::string endpoints;
  // Of all keys; schedulers with one prefix are replicas of one another.
  std::string prefix = "/kronserve/";
  // A leader that is not heard of for this long is replaced; whole seconds,
  // rounded up, and at least what etcd grants (about 2 s).
  absl::Duration lease = absl::Seconds(5);
};

// Connects lazily.
//
//   clock  outlives the result.
std::unique_ptr<Election> CreateElection(const EtcdOptions& options,
                                         const Clock* clock);

}  // namespace kronserve::scheduler::etcd

#endif  // KRONSERVE_SCHEDULER_ETCD_FACTORY_H_
