// What the core asks of the world outside.
//
// Layer: scheduler. May include common/, proto/ and placement/.
// The driver carries effects out in their order, but does not wait: each that
// has a ticket ends in one SchedulerCore::EffectDone(), or CheckpointWritten()
// where there is an answer to report. A driver that loses an
// effect reports it as kDeadlineExceeded.

#ifndef KRONSERVE_SCHEDULER_EFFECTS_H_
#define KRONSERVE_SCHEDULER_EFFECTS_H_

#include <cstdint>
#include <string>
#include <variant>

#include "common/log.h"
#include "kronserve/v1/job.pb.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "scheduler/state_store.h"

namespace kronserve::scheduler {

// StateStore::Write(). Writes are done one after the other, in order.
struct PersistEffect {
  uint64_t ticket = 0;
  WriteBatch writes;
};

// ServerControl::ConfigureJob() at `server`.
struct ConfigureEffect {
  uint64_t ticket = 0;
  v1::ServerAddress server;
  v1::ConfigureJobRequest request;
};

// ServerControl::DropJob() at `server`.
struct DropEffect {
  uint64_t ticket = 0;
  v1::ServerAddress server;
  v1::DropJobRequest request;
};

// ServerControl::WriteCheckpoint() at `server`.
struct WriteCheckpointEffect {
  uint64_t ticket = 0;
  v1::ServerAddress server;
  v1::WriteCheckpointRequest request;
};

// ServerControl::CommitCheckpoint() at `server`.
struct CommitCheckpointEffect {
  uint64_t ticket = 0;
  v1::ServerAddress server;
  v1::CommitCheckpointRequest request;
};

// A line for the log; nothing to report back.
struct LogEffect {
  LogLevel level = LogLevel::kInfo;
  std::string message;
};

using Effect =
    std::variant<PersistEffect, ConfigureEffect, DropEffect,
                 WriteCheckpointEffect, CommitCheckpointEffect, LogEffect>;

}  // namespace kronserve::scheduler

#endif  // KRONSERVE_SCHEDULER_EFFECTS_H_
