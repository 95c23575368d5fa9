#include "tests/simulation/layer_oracle.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace kronserve::simulation {
namespace {

// float32 averages of values of about 1: some hundred roundings of 6e-8 each,
// of which the decay forgets most.
constexpr double kTolerance = 2e-5;

// True on the diagonal of a packed upper triangle of `n` entries.
std::vector<bool> Diagonal(size_t n) {
  std::vector<bool> diagonal(n, false);
  size_t side = 0;
  while (side * (side + 1) / 2 < n) ++side;
  for (size_t at = 0; side > 0; at += side--) diagonal[at] = true;
  return diagonal;
}

std::string Compare(const char* name, const std::vector<float>& found,
                    const std::vector<double>& expected) {
  if (found.size() != expected.size()) {
    return absl::StrCat(name, " has ", found.size(), " entries, expected ",
                        expected.size());
  }
  for (size_t i = 0; i < found.size(); ++i) {
    const double error = std::abs(found[i] - expected[i]);
    if (error <= kTolerance * std::max(1.0, std::abs(expected[i]))) continue;
    return absl::StrCat(name, "[", i, "] is ", found[i], ", expected ",
                        expected[i]);
  }
  return "";
}

}  // namespace

void LayerOracle::Update(v1::FactorInit init, double weight,
                         const Addend& addend, std::vector<double>* average) {
  const std::vector<Part>& parts = addend.parts;
  const size_t n = parts.front().sum->size();
  if (average->empty()) {
    average->assign(n, 0);
    const std::vector<bool> diagonal = Diagonal(n);
    for (size_t i = 0; init == v1::FACTOR_INIT_IDENTITY && i < n; ++i) {
      (*average)[i] = diagonal[i] ? 1 : 0;
    }
  }
  double rows = 0;
  for (const Part& part : parts) rows += static_cast<double>(part.rows);
  for (size_t i = 0; i < n; ++i) {
    double sum = 0;
    for (const Part& part : parts) sum += (*part.sum)[i];
    (*average)[i] =
        (1 - weight) * (*average)[i] + weight * addend.scale * sum / rows;
  }
}

void LayerOracle::Merge(v1::FactorInit init, double decay, const Addend& a,
                        const Addend& g) {
  ++updates_;
  double weight = 1 - decay;
  if (init == v1::FACTOR_INIT_WARM) {
    weight = std::max(weight, 1.0 / static_cast<double>(updates_));
  } else if (init == v1::FACTOR_INIT_FIRST && updates_ == 1) {
    weight = 1;
  }
  Update(init, weight, a, &a_);
  Update(init, weight, g, &g_);
}

std::string LayerOracle::Difference(const std::vector<float>& a,
                                    const std::vector<float>& g) const {
  const std::string of_a = Compare("A", a, a_);
  return of_a.empty() ? Compare("G", g, g_) : of_a;
}

}  // namespace kronserve::simulation
