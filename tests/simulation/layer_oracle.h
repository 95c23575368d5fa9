// What the averages of one layer should be, in double.
//
// Layer: tests. Source: METHOD.md D1 and D2. Written without the code it is
// compared with.

#ifndef KRONSERVE_TESTS_SIMULATION_LAYER_ORACLE_H_
#define KRONSERVE_TESTS_SIMULATION_LAYER_ORACLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kronserve/v1/job.pb.h"

namespace kronserve::simulation {

class LayerOracle {
 public:
  // One contributor's raw sum and its rows.
  struct Part {
    const std::vector<float>* sum = nullptr;
    int64_t rows = 0;
  };

  // What a round adds to one of the two averages.
  struct Addend {
    std::vector<Part> parts;
    double scale = 1;
  };

  // One more round was merged.
  void Merge(v1::FactorInit init, double decay, const Addend& a,
             const Addend& g);

  int64_t updates() const { return updates_; }

  // What differs between these averages and the expected; empty when nothing.
  std::string Difference(const std::vector<float>& a,
                         const std::vector<float>& g) const;

 private:
  static void Update(v1::FactorInit init, double weight, const Addend& addend,
                     std::vector<double>* average);

  int64_t updates_ = 0;
  std::vector<double> a_;  // Packed upper triangles.
  std::vector<double> g_;
};

}  // namespace kronserve::simulation

#endif  // KRONSERVE_TESTS_SIMULATION_LAYER_ORACLE_H_
