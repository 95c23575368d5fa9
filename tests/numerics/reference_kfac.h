// K-FAC training of an MLP in one process, in double, by plain loops.
//
// Layer: tests. Includes nothing of this repository on purpose: it is written
// from the formulas of the papers, so that agreement means something.
//
// The loss is the mean softmax cross-entropy over the batch, hidden layers use
// tanh. For a layer with weights W [d_out, d_in + 1] (bias last), inputs a~
// (with a final 1) and per-sample output gradients g:
//   A = mean a~ a~^T, G = mean g g^T, averaged with weight max(1/k, 1 - decay)
//   on the k-th batch; V = (G + gG I)^-1 D (A + gA I)^-1 with
//   gA = pi sqrt(damping), gG = sqrt(damping) / pi,
//   pi^2 = (tr A / dim A) / (tr G / dim G);
//   nu = min(1, sqrt(kl_clip / |lr^2 sum <V, D>|)).
// Source: Martens & Grosse, arXiv 1503.05671; Zhang et al., arXiv 2206.15143.

#ifndef KRONSERVE_TESTS_NUMERICS_REFERENCE_KFAC_H_
#define KRONSERVE_TESTS_NUMERICS_REFERENCE_KFAC_H_

#include <cstdint>
#include <vector>

namespace kronserve::numerics {

// Rows of equal length.
using Rows = std::vector<std::vector<double>>;

// A way to get it wrong. A comparison with a mutated reference has to fail.
enum class Mutation {
  kNone,
  kPiOne,               // pi = 1
  kDampingTwice,        // damping added to each factor twice
  kWrongDivisor,        // G divided by n^2, as when the mean is not undone
  kBiasColumnDropped,   // A built without the final 1
  kFactorsSwapped,      // V = A^-1 D G^-1 in layers where that fits
  kAverageReversed,     // the weight on old used on new
  kLastMicroBatchLost,  // statistics of all but the last micro-batch
};

struct ReferenceOptions {
  double damping = 0.1;
  double factor_decay = 0.95;  // Weight on the old average.
  int64_t factor_update_steps = 1;
  int64_t inv_update_steps = 1;
  int64_t micro_batches = 1;
  Mutation mutation = Mutation::kNone;
};

// What one step does to one layer.
struct ReferenceLayer {
  Rows gradient;         // D [d_out, d_in + 1]
  Rows preconditioned;   // V
  double condition = 0;  // cond(A + gA I) cond(G + gG I), 2-norm
};

class ReferenceKfac {
 public:
  ReferenceKfac(const std::vector<int>& sizes, const ReferenceOptions& options);

  // Computes D and V at `weights` (per layer [d_out, d_in + 1]) on one global
  // batch, and moves the averages on. `step` counts from 0.
  std::vector<ReferenceLayer> Step(int64_t step,
                                   const std::vector<Rows>& weights,
                                   const Rows& inputs,
                                   const std::vector<int>& labels);

 private:
  struct LayerState {
    Rows a_average, g_average;
    Rows a_inverse, g_inverse;
    double condition = 0;
    int64_t updates = 0;
  };
  void Average(const std::vector<Rows>& layer_inputs,
               const std::vector<Rows>& layer_gradients);
  void Refresh(LayerState* layer);

  std::vector<int> sizes_;
  ReferenceOptions options_;
  std::vector<LayerState> layers_;
};

// The KL factor of one step: `layers` as returned by Step().
double KlFactor(const std::vector<ReferenceLayer>& layers, double lr,
                double kl_clip);

// Frobenius norm of a - b.
double Distance(const Rows& a, const Rows& b);
double Norm(const Rows& a);

}  // namespace kronserve::numerics

#endif  // KRONSERVE_TESTS_NUMERICS_REFERENCE_KFAC_H_
