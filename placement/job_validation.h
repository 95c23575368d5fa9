// Whether a job makes sense, and whether two are the same.
//
// Layer: placement. May include common/ and proto/.
// Scheduler and servers both include it: each checks for itself what it is
// told, with one set of rules (job.proto).

#ifndef KRONSERVE_PLACEMENT_JOB_VALIDATION_H_
#define KRONSERVE_PLACEMENT_JOB_VALIDATION_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "google/protobuf/repeated_field.h"
#include "kronserve/v1/job.pb.h"

namespace kronserve::placement {

using Layers = google::protobuf::RepeatedPtrField<v1::LayerSpec>;

// Bytes of a job, server, node or layer name and of a run id.
inline constexpr int64_t kMaxNameBytes = 256;
inline constexpr int64_t kMaxDim = (int64_t{1} << 31) - 1;

// Checks layers and options. Without layers the options are not looked at:
// such a job uses the rendezvous only.
//
// Errors:
//   kInvalidArgument  every fault, separated by "; ", each naming the layer or
//                     option and the value. Many faults are cut after 20.
absl::Status ValidateJob(const Layers& layers, const v1::JobOptions& options);

// What differs, in one line ("layer 'fc': [10, 30], was [10, 20]"); empty when
// nothing does. `b` is the job that is there already.
std::string DescribeDifference(const Layers& a_layers,
                               const v1::JobOptions& a_options,
                               const Layers& b_layers,
                               const v1::JobOptions& b_options);

// XXH3-64 over layers, options and world size. Never 0.
uint64_t PlanHash(const Layers& layers, const v1::JobOptions& options,
                  int64_t world_size);

}  // namespace kronserve::placement

#endif  // KRONSERVE_PLACEMENT_JOB_VALIDATION_H_
