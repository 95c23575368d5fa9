// How a rank finds the next world of its job when the last one fell apart.
//
// Layer: worker. May include client/ and lower.
// docs/elastic.md has the rule and its reasons.

#ifndef KRONSERVE_WORKER_ELASTIC_JOIN_H_
#define KRONSERVE_WORKER_ELASTIC_JOIN_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "client/scheduler_client.h"
#include "worker/session.h"

namespace kronserve::worker {

// One attempt to join; Session::Join() with everything else bound.
using JoinOnce = std::function<absl::StatusOr<std::unique_ptr<Session>>(
    const SessionOptions&)>;

// Claims options.restart_count, and a higher one each time that the job turns
// out to be ahead or a rank is lost while the ranks connect. A rank that is
// still held by the process that died before this one is waited for.
//
//   options  join_timeout bounds all attempts together.
//
// Errors:
//   kDeadlineExceeded  the last attempt's reason.
//   others             Session::Join()'s; at once.
absl::StatusOr<std::unique_ptr<Session>> JoinElastic(
    SessionOptions options, const JoinOnce& join, const client::Timing& timing);

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_ELASTIC_JOIN_H_
