// A fixed number of threads that run tasks in order of priority.
//
// Layer: common. May include common/ only.

#ifndef KRONSERVE_COMMON_TASK_POOL_H_
#define KRONSERVE_COMMON_TASK_POOL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/mutex.h"

namespace kronserve {

// Runs submitted tasks on its own threads: lowest priority number first, in
// order of submission among equals.
//
// Thread safety: thread-safe.
// Lifetime:      the destructor runs what is queued, then joins; nothing may
//                submit by then. A task must not outlive what it refers to.
class TaskPool {
 public:
  // Starts `num_threads` (at least 1) threads; `name` (at most 15 characters)
  // is what ps and gdb show.
  TaskPool(const std::string& name, int num_threads);
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // Queues `task`. Does not block. The queue is not bounded here: callers
  // admit work before they submit it.
  void Submit(std::function<void()> task, int64_t priority = 0)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Tasks waiting, not those running.
  int64_t queue_depth() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // The next task; empty when the pool ends and nothing is queued.
  std::function<void()> Next() ABSL_LOCKS_EXCLUDED(mu_);
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t next_sequence_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::pair<int64_t, uint64_t>, std::function<void()>> queue_
      ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;
};

}  // namespace kronserve

#endif  // KRONSERVE_COMMON_TASK_POOL_H_
