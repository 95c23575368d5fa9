// How Tikhonov damping is split between the two factors of a layer.
//
// Layer: curvature. May include linalg/ and common/.
// Source: Martens & Grosse, arXiv 1503.05671, section 6.3; METHOD.md D3.

#ifndef KRONSERVE_CURVATURE_DAMPING_H_
#define KRONSERVE_CURVATURE_DAMPING_H_

#include <cstdint>

namespace kronserve::curvature {

enum class DampingForm { kFactored, kExact };

struct FactoredDamping {
  double pi = 1;         // sqrt((tr A / d_in) / (tr G / d_out))
  double gamma_a = 0;    // pi sqrt(damping), added to the diagonal of A
  double gamma_g = 0;    // sqrt(damping) / pi, added to the diagonal of G
  bool clipped = false;  // pi was outside [1e-12, 1e12]
};

// Splits `damping` (finite, >= 0). pi is 1 where a trace is not above 0.
FactoredDamping SplitDamping(double trace_a, int64_t d_in, double trace_g,
                             int64_t d_out, double damping);

}  // namespace kronserve::curvature

#endif  // KRONSERVE_CURVATURE_DAMPING_H_
