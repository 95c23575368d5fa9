// What people and ranks are told of a job.
//
// Layer: scheduler. May include common/, proto/ and placement/.

#ifndef KRONSERVE_SCHEDULER_JOB_REPORT_H_
#define KRONSERVE_SCHEDULER_JOB_REPORT_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kronserve/v1/job.pb.h"
#include "kronserve/v1/scheduler.pb.h"
#include "scheduler/job.h"
#include "scheduler/membership.h"

namespace kronserve::scheduler {

v1::JobStatus DescribeJob(const Job& job, const Membership& membership,
                          absl::Time now);

// Per layer: "layer 'fc1': inverse, [128, 785], 5123 bytes on server 's1'".
std::vector<std::string> PlanLines(const v1::JobConfig& config);

// "layer 'fc1' began on server 's1' ..."; empty when nothing can be lost.
std::string DescribeRecovery(const std::string& layer,
                             const std::string& server,
                             const v1::LayerRecovery& recovery);

// Cautions about options that are legal but easily regretted.
std::vector<std::string> Warnings(const v1::JobConfig& config);

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_JOB_REPORT_H_
