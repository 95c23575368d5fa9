#include "common/task_pool.h"

#include <pthread.h>

#include <algorithm>

namespace kronserve {

TaskPool::TaskPool(const std::string& name, int num_threads) {
  const std::string short_name = name.substr(0, 15);
  for (int i = 0; i < std::max(1, num_threads); ++i) {
    threads_.emplace_back([this, short_name] {
      pthread_setname_np(pthread_self(), short_name.c_str());
      Run();
    });
  }
}

TaskPool::~TaskPool() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

void TaskPool::Submit(std::function<void()> task, int64_t priority) {
  {
    MutexLock lock(&mu_);
    queue_.emplace(std::make_pair(priority, next_sequence_++), std::move(task));
  }
  changed_.NotifyOne();
}

int64_t TaskPool::queue_depth() const {
  MutexLock lock(&mu_);
  return static_cast<int64_t>(queue_.size());
}

std::function<void()> TaskPool::Next() {
  MutexLock lock(&mu_);
  while (queue_.empty() && !stopping_) {
    changed_.WaitFor(&mu_, absl::Seconds(60));
  }
  if (queue_.empty()) return nullptr;
  std::function<void()> task = std::move(queue_.begin()->second);
  queue_.erase(queue_.begin());
  return task;
}

void TaskPool::Run() {
  while (std::function<void()> task = Next()) task();
}

}  // namespace kronserve
