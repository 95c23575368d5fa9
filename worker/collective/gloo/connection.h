// How the ranks of a Gloo group find and reach one another.
//
// Layer: worker. Private to worker/collective/gloo/; names no Gloo header.

#ifndef KRONSERVE_WORKER_COLLECTIVE_GLOO_CONNECTION_H_
#define KRONSERVE_WORKER_COLLECTIVE_GLOO_CONNECTION_H_

#include <chrono>
#include <exception>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/collective/communicator.h"

namespace gloo {
class Context;
}  // namespace gloo

namespace kronserve::worker {

// Carries a Status through frames that only know exceptions. Never leaves
// worker/collective/gloo/.
struct StatusException : std::exception {
  explicit StatusException(absl::Status status);
  const char* what() const noexcept override;
  absl::Status status;
};

// kDeadlineExceeded for a time-out, kUnavailable for anything else Gloo throws,
// and the status itself for a StatusException; `context` comes first.
absl::Status StatusFromGloo(const std::string& context,
                            const std::exception& error);

// In milliseconds, at least 1: Gloo reads 0 as "for ever".
std::chrono::milliseconds GlooTimeout(absl::Duration timeout);

// Connects `group` to all its ranks through addresses on `host`.
//
// Errors: as CreateGlooFactory().
absl::StatusOr<std::shared_ptr<gloo::Context>> ConnectGloo(
    const std::string& host, const GroupSpec& group, Rendezvous* rendezvous);

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_COLLECTIVE_GLOO_CONNECTION_H_
