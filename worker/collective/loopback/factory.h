// Groups whose ranks are threads of one process.
//
// Layer: worker. May include common/ and worker/collective/communicator.h.

#ifndef KRONSERVE_WORKER_COLLECTIVE_LOOPBACK_FACTORY_H_
#define KRONSERVE_WORKER_COLLECTIVE_LOOPBACK_FACTORY_H_

#include <memory>

#include "worker/collective/communicator.h"

namespace kronserve::worker {

// Where the ranks of loopback groups meet, by the group's name.
//
// A name is free again once its group is complete, or once its ranks gave up
// waiting. Sums run in rank order. A rank whose communicator is destroyed has
// left: calls that still need it fail at once with kUnavailable.
//
// Thread safety: thread-safe.
// Lifetime:      factories and communicators may outlive the hub.
class LoopbackHub {
 public:
  LoopbackHub();
  ~LoopbackHub();

  // The factory ignores its Rendezvous, which may be null.
  //
  // Errors of the factory:
  //   kInvalidArgument   rank or size out of range, the rank is taken, or the
  //                      ranks disagree on the size.
  //   kDeadlineExceeded  names the ranks that did not come.
  CommunicatorFactory Factory() const;

 private:
  class Board;
  std::shared_ptr<Board> board_;
};

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_COLLECTIVE_LOOPBACK_FACTORY_H_
