// A StateStore that is forgotten when the process ends.

#ifndef KRONSERVE_SCHEDULER_MEMORY_FACTORY_H_
#define KRONSERVE_SCHEDULER_MEMORY_FACTORY_H_

#include <memory>

#include "scheduler/state_store.h"

namespace kronserve::scheduler::memory {

std::unique_ptr<StateStore> CreateStateStore();

}  // namespace kronserve::scheduler::memory

#endif  // KRONSERVE_SCHEDULER_MEMORY_FACTORY_H_
