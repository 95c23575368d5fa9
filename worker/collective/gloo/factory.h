// Groups of processes over TCP, by Gloo.
//
// Layer: worker. May include common/ and worker/collective/communicator.h.

#ifndef KRONSERVE_WORKER_COLLECTIVE_GLOO_FACTORY_H_
#define KRONSERVE_WORKER_COLLECTIVE_GLOO_FACTORY_H_

#include <string>

#include "worker/collective/communicator.h"

namespace kronserve::worker {

struct GlooOptions {
  // Address or name of this host as the other ranks reach it. The traffic is
  // neither encrypted nor authenticated, hence loopback unless told otherwise.
  std::string host = "127.0.0.1";
};

// Groups of one rank need neither a network nor a Rendezvous. Sums run in rank
// order, with the same bits as the loopback backend. Where SIGPIPE would end
// the process (the default), the first group makes it ignored.
//
// Errors of the factory, beyond those of Communicator:
//   kInvalidArgument     rank or size out of range, or no Rendezvous for more
//                        than one rank.
//   kFailedPrecondition  `host` is not an address of this machine.
CommunicatorFactory CreateGlooFactory(const GlooOptions& options);

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_COLLECTIVE_GLOO_FACTORY_H_
