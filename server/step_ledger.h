// Who has ended which step, and how.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.
// Source: PROTOCOL.md 3 (two phases).

#ifndef KRONSERVE_SERVER_STEP_LEDGER_H_
#define KRONSERVE_SERVER_STEP_LEDGER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kronserve::server {

// The ends of a job's steps, as its ranks reported them.
//
// Thread safety: none.
// Invariants:    a step that one rank voided stays void, whatever comes later.
//                Remembers a bounded number of steps.
class StepLedger {
 public:
  explicit StepLedger(int world_size);

  // `rank` is 0 to world_size - 1. Repeats change nothing.
  void Commit(int64_t step, int rank);
  void Void(int64_t step, int rank, const std::string& reason);

  bool IsCommitted(int64_t step, int rank) const;
  // Every rank has committed `step`.
  bool IsCommittedByAll(int64_t step) const;
  // "rank 1: overflow"; null when the step is not void.
  const std::string* VoidReason(int64_t step) const;

  // Forgets the oldest steps before `needed_from` beyond `keep`, and any
  // beyond kMostSteps.
  void Prune(int64_t needed_from, int keep);
  int size() const { return static_cast<int>(steps_.size()); }

  static constexpr int kMostSteps = 1024;

 private:
  struct Step {
    std::vector<bool> committed;  // [world_size]
    int num_committed = 0;
    bool voided = false;
    std::string void_reason;
  };

  Step& Open(int64_t step);
  const Step* Find(int64_t step) const;

  int world_size_;
  std::map<int64_t, Step> steps_;
};

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_STEP_LEDGER_H_
