// One step, one outcome: what the ranks apply, and what servers answer.
//
// Layer: tests. Source: PROTOCOL.md 1 and 2.

#ifndef KRONSERVE_TESTS_SIMULATION_AGREEMENT_CHECK_H_
#define KRONSERVE_TESTS_SIMULATION_AGREEMENT_CHECK_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "server/effects.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/verdict.h"

namespace kronserve::simulation {

// What a rank applied for one layer.
struct AppliedLayer {
  bool preconditioned = false;
  int64_t version = 0;
  uint64_t checksum = 0;
  bool operator==(const AppliedLayer& other) const {
    return preconditioned == other.preconditioned && version == other.version &&
           checksum == other.checksum;
  }
};

class AgreementCheck {
 public:
  explicit AgreementCheck(Verdict* verdict) : verdict_(*verdict) {}

  // A server answers a gradient: whoever asks again gets the same bytes.
  void OnAnswer(const Process* server, const std::string& name, int64_t world,
                int64_t step, const server::Reply& reply);

  // A rank has applied a step; `parameters` is the hash of all it holds.
  void OnApplied(int64_t world, int64_t step, int rank,
                 const std::vector<AppliedLayer>& layers, uint64_t parameters);

  int64_t preconditioned() const { return preconditioned_; }
  int64_t fallbacks() const { return fallbacks_; }

 private:
  // What one server answered for one layer in one step of a world.
  using AnswerKey = std::tuple<int64_t, int64_t, int>;
  struct Given {
    std::string server;
    int64_t version = 0;
    uint64_t checksum = 0;
  };
  struct Outcome {
    int rank = 0;
    std::vector<AppliedLayer> layers;
    uint64_t parameters = 0;
  };

  Verdict& verdict_;
  std::map<AnswerKey, std::map<const Process*, Given>> answers_;
  std::map<std::pair<int64_t, int64_t>, Outcome> applied_;
  int64_t preconditioned_ = 0;
  int64_t fallbacks_ = 0;
};

}  // namespace kronserve::simulation

#endif  // KRONSERVE_TESTS_SIMULATION_AGREEMENT_CHECK_H_
