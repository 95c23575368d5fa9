// Taking over jobs that servers hold and this scheduler's store does not know,
// or knows from an earlier life only: on an empty store, or on one that was
// put back from an old copy, under running jobs.
//
// Layer: scheduler. May include common/, proto/ and placement/.
// Pure functions; SchedulerCore::AdoptJob() calls them when a server registers.

#ifndef KRONSERVE_SCHEDULER_ADOPTION_H_
#define KRONSERVE_SCHEDULER_ADOPTION_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kronserve/v1/scheduler.pb.h"
#include "scheduler/job.h"

namespace kronserve::scheduler {

// Whether what a server says it holds can be true.
//
// Errors:
//   kInvalidArgument  a number or the length of the name is out of range
//                     (limits.h).
absl::Status CheckHeld(const v1::JobHeld& held);

// Whether `held` brings a later (world, epoch) than `job` has (null: the job is
// not known). What is known to have ended, a job or a world that could not
// start, is not begun again by a server that has not heard of it.
bool KnowsMore(const v1::JobHeld& held, const Job* job);

// Whether the ranks of `job` have claimed their places here since we started:
// then they live in what we tell them, not in what a server remembers.
bool ClaimedHere(const Job& job);

// The job of `held`, as if its config had been stored here: every rank has one
// fresh lease, no server has confirmed anything.
//
// Errors:
//   kInvalidArgument  the config contradicts itself, or `held`.
absl::StatusOr<JobTable::node_type> JobOf(const v1::JobHeld& held,
                                          absl::Duration validity,
                                          absl::Time now);

// Gives `gathering`, whose ranks are about to form a world, the owners of
// `held`: the next world begins with the state that they have.
//
// Errors:
//   kFailedPrecondition  other layers or options; names the difference.
absl::Status TakeOwners(const Job& held, Job* gathering);

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_ADOPTION_H_
