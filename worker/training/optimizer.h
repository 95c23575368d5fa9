// What turns gradients, preconditioned or not, into parameter updates.
//
// Layer: worker. May include linalg/ and common/.

#ifndef KRONSERVE_WORKER_TRAINING_OPTIMIZER_H_
#define KRONSERVE_WORKER_TRAINING_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "linalg/matrix_view.h"

namespace kronserve::worker {

// All that an optimizer remembers from step to step.
template <typename T>
struct OptimizerState {
  int64_t steps = 0;
  // [slots_per_parameter * parameters] of the parameters' sizes; empty before
  // the first step.
  std::vector<std::vector<T>> slots;
};

// Thread safety: none.
// Invariants:    every call brings the same shapes in the same order.
template <typename T>
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Numbers kept per parameter.
  virtual int slots_per_parameter() const = 0;
  // May be replaced by that of another optimizer of the same options.
  OptimizerState<T>& state() { return state_; }

  // Updates each of `parameters` by the gradient of the same position.
  virtual void Step(double lr,
                    const std::vector<linalg::MatrixView<T>>& parameters,
                    const std::vector<linalg::MatrixView<T>>& gradients) = 0;

 protected:
  OptimizerState<T> state_;
};

struct SgdOptions {
  double momentum = 0;
  double weight_decay = 0;  // Added to the gradient as weight_decay * p.
};

// u := momentum u + (g + weight_decay p); p := p - lr u. The update of
// PyTorch's SGD without dampening.
template <typename T>
std::unique_ptr<Optimizer<T>> CreateSgd(const SgdOptions& options);

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;  // As in SgdOptions.
};

// Source: Kingma & Ba, arXiv 1412.6980, Algorithm 1.
template <typename T>
std::unique_ptr<Optimizer<T>> CreateAdam(const AdamOptions& options);

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_TRAINING_OPTIMIZER_H_
