// Jobs that are over, so that their late calls are told so.
//
// Layer: server. May include common/.

#ifndef KRONSERVE_SERVER_FINISHED_JOBS_H_
#define KRONSERVE_SERVER_FINISHED_JOBS_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

namespace kronserve::server {

// The newest kMost finished jobs with the world up to which they are over.
//
// Thread safety: none.
class FinishedJobs {
 public:
  static constexpr size_t kMost = 1024;

  void Add(const std::string& job, int64_t world_version) {
    const auto [it, is_new] = worlds_.try_emplace(job, world_version);
    it->second = std::max(it->second, world_version);
    if (!is_new) return;
    order_.push_back(job);
    if (order_.size() <= kMost) return;
    worlds_.erase(order_.front());
    order_.pop_front();
  }

  // Whether this world of the job is over.
  bool Contains(const std::string& job, int64_t world_version) const {
    const auto it = worlds_.find(job);
    return it != worlds_.end() && world_version <= it->second;
  }

 private:
  std::map<std::string, int64_t> worlds_;
  std::deque<std::string> order_;  // Oldest first.
};

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_FINISHED_JOBS_H_
