// Whether a run kept every promise, and which it broke first.
//
// Layer: tests.

#ifndef KRONSERVE_TESTS_SIMULATION_VERDICT_H_
#define KRONSERVE_TESTS_SIMULATION_VERDICT_H_

#include <string>

namespace kronserve::simulation {

class Verdict {
 public:
  bool ok() const { return why_.empty(); }
  const std::string& why() const { return why_; }

  // `explain` is a function that returns the words; it runs on failure only.
  template <typename Explain>
  bool Require(bool holds, const Explain& explain) {
    if (!holds && why_.empty()) why_ = explain();
    return holds;
  }

 private:
  std::string why_;
};

}  // namespace kronserve::simulation

#endif  // KRONSERVE_TESTS_SIMULATION_VERDICT_H_
