#include "tests/simulation/event_queue.h"

#include <algorithm>

namespace kronserve::simulation {

void EventQueue::At(absl::Time time, ProcessPtr process, Action action) {
  heap_.push_back({std::max(time, now_), next_order_++, std::move(process),
                   std::move(action)});
  std::push_heap(heap_.begin(), heap_.end(), &Later);
}

bool EventQueue::RunOne(absl::Time end) {
  if (heap_.empty() || heap_.front().time > end) {
    now_ = std::max(now_, end);
    return false;
  }
  std::pop_heap(heap_.begin(), heap_.end(), &Later);
  Event event = std::move(heap_.back());
  heap_.pop_back();
  now_ = event.time;
  ++events_run_;
  if (event.process == nullptr) {
    event.action();
  } else if (event.process->frozen_) {
    event.process->held_.push_back(std::move(event.action));
  } else if (event.process->alive_) {
    event.action();
  }
  return true;
}

void EventQueue::Kill(Process* process) {
  process->alive_ = false;
  process->frozen_ = false;
  process->held_.clear();
}

void EventQueue::Thaw(const ProcessPtr& process) {
  process->frozen_ = false;
  std::vector<Action> held;
  held.swap(process->held_);
  for (Action& action : held) At(now_, process, std::move(action));
}

}  // namespace kronserve::simulation
