#include "server/cost_probe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "common/status_macros.h"
#include "linalg/matrix_view.h"
#include "placement/cost_curve.h"

namespace kronserve::server {
namespace {

constexpr int kTerms = 3;
using Terms = std::array<double, kTerms>;

Terms TermsOf(const CostSample& sample) {
  const double d = static_cast<double>(sample.d);
  // Divided by the measured time, so that small sides count as much as large
  // ones.
  return {1 / sample.seconds, d * d / sample.seconds,
          d * d * d / sample.seconds};
}

// Solves the normal equations of the terms in `used` by elimination; absent
// when they are singular.
std::optional<Terms> Solve(const std::vector<CostSample>& samples,
                           unsigned used) {
  std::array<std::array<double, kTerms + 1>, kTerms> m{};
  for (const CostSample& sample : samples) {
    const Terms x = TermsOf(sample);
    for (int i = 0; i < kTerms; ++i) {
      for (int j = 0; j < kTerms; ++j) m[i][j] += x[i] * x[j];
      m[i][kTerms] += x[i];
    }
  }
  for (int i = 0; i < kTerms; ++i) {
    if ((used >> i) & 1u) continue;
    for (int j = 0; j < kTerms; ++j) m[i][j] = m[j][i] = 0;
    m[i][i] = 1;
    m[i][kTerms] = 0;
  }
  for (int i = 0; i < kTerms; ++i) {
    // Positive definite: no pivoting is needed.
    if (!(m[i][i] > 0)) return std::nullopt;
    for (int row = i + 1; row < kTerms; ++row) {
      const double factor = m[row][i] / m[i][i];
      for (int j = i; j <= kTerms; ++j) m[row][j] -= factor * m[i][j];
    }
  }
  Terms x{};
  for (int i = kTerms - 1; i >= 0; --i) {
    x[i] = m[i][kTerms];
    for (int j = i + 1; j < kTerms; ++j) x[i] -= m[i][j] * x[j];
    x[i] /= m[i][i];
  }
  return x;
}

double SquaredError(const std::vector<CostSample>& samples, const Terms& x) {
  double sum = 0;
  for (const CostSample& sample : samples) {
    const Terms t = TermsOf(sample);
    const double error = x[0] * t[0] + x[1] * t[1] + x[2] * t[2] - 1;
    sum += error * error;
  }
  return sum;
}

v1::CostCurve MakeCurve(double seconds, double per_d2, double per_d3) {
  v1::CostCurve curve;
  curve.set_seconds(seconds);
  curve.set_seconds_per_d2(per_d2);
  curve.set_seconds_per_d3(per_d3);
  return curve;
}

// Diagonally dominant, so that any solver takes it.
linalg::Matrix<float> MakeSpdMatrix(int64_t n) {
  linalg::Matrix<float> m(n, n);
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t col = 0; col < n; ++col) {
      m(row, col) = 1.0f / static_cast<float>(1 + std::abs(row - col));
    }
    m(row, row) = 16.0f;
  }
  return m;
}

}  // namespace

v1::CostCurve FitCostCurve(const std::vector<CostSample>& samples) {
  // Few terms: the best curve without a negative one is the best of the fits
  // with every subset of them that came out without.
  Terms best{};
  double best_error = std::numeric_limits<double>::infinity();
  for (unsigned used = 1; used < (1u << kTerms); ++used) {
    const std::optional<Terms> x = Solve(samples, used);
    if (!x.has_value()) continue;
    if (*std::min_element(x->begin(), x->end()) < 0) continue;
    const double error = SquaredError(samples, *x);
    if (!(error < best_error)) continue;
    best_error = error;
    best = *x;
  }
  return MakeCurve(best[0], best[1], best[2]);
}

// Seconds of the fastest of as many factorisations as `budget` has time for.
absl::StatusOr<double> FastestSeconds(linalg::SpdSolver<float>& solver,
                                      int64_t side, absl::Duration budget,
                                      const Clock& clock) {
  const linalg::Matrix<float> m = MakeSpdMatrix(side);
  linalg::Matrix<float> lower(side, side);
  const absl::Time end = clock.Now() + budget;
  absl::Duration best = absl::InfiniteDuration();
  do {
    const absl::Time start = clock.Now();
    KRONSERVE_RETURN_IF_ERROR(solver.Factorize(m.view(), 0, lower.view()));
    best = std::min(best, clock.Now() - start);
    // The next one would take as long again.
  } while (clock.Now() + best < end);
  return std::max(absl::ToDoubleSeconds(best), 1e-9);
}

absl::StatusOr<v1::CostCurve> MeasureCostCurve(linalg::Device device,
                                               absl::Duration budget,
                                               const Clock& clock) {
  KRONSERVE_ASSIGN_OR_RETURN(auto tools,
                             linalg::CreateLinearAlgebra<float>(device));
  constexpr int64_t kSides[] = {64, 256, 512};
  constexpr double kShares[] = {0.2, 0.3, 0.5};
  std::vector<CostSample> samples;
  for (int i = 0; i < 3; ++i) {
    KRONSERVE_ASSIGN_OR_RETURN(
        const double seconds,
        FastestSeconds(*tools.spd, kSides[i], kShares[i] * budget, clock));
    samples.push_back({kSides[i], seconds});
  }
  return FitCostCurve(samples);
}

v1::CostCurve DefaultCostCurve() {
  const placement::CostCurve curve;
  return MakeCurve(curve.seconds, curve.seconds_per_d2, curve.seconds_per_d3);
}

}  // namespace kronserve::server
