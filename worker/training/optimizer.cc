#include "worker/training/optimizer.h"

#include <cmath>

namespace kronserve::worker {
namespace {

template <typename T>
using Views = std::vector<linalg::MatrixView<T>>;

// Counts a step; zeros in the shapes of `parameters`, made at the first.
template <typename T>
void BeginStep(const Views<T>& parameters, int slots_per_parameter,
               OptimizerState<T>* state) {
  ++state->steps;
  if (!state->slots.empty()) return;
  for (int slot = 0; slot < slots_per_parameter; ++slot) {
    for (const auto& parameter : parameters) {
      state->slots.emplace_back(static_cast<size_t>(parameter.size()));
    }
  }
}

template <typename T>
class Sgd final : public Optimizer<T> {
 public:
  explicit Sgd(const SgdOptions& options) : options_(options) {}

  int slots_per_parameter() const override { return 1; }  // The velocity.

  void Step(double lr, const Views<T>& parameters,
            const Views<T>& gradients) override {
    BeginStep(parameters, slots_per_parameter(), &this->state_);
    const T rate = T(lr);
    const T momentum = T(options_.momentum);
    const T decay = T(options_.weight_decay);
    for (size_t i = 0; i < parameters.size(); ++i) {
      T* p = parameters[i].data;
      const T* g = gradients[i].data;
      T* u = this->state_.slots[i].data();
      for (int64_t j = 0; j < parameters[i].size(); ++j) {
        u[j] = momentum * u[j] + (g[j] + decay * p[j]);
        p[j] -= rate * u[j];
      }
    }
  }

 private:
  const SgdOptions options_;
};

template <typename T>
class Adam final : public Optimizer<T> {
 public:
  explicit Adam(const AdamOptions& options) : options_(options) {}

  // Means of the gradient, then of its square.
  int slots_per_parameter() const override { return 2; }

  void Step(double lr, const Views<T>& parameters,
            const Views<T>& gradients) override {
    OptimizerState<T>& state = this->state_;
    BeginStep(parameters, slots_per_parameter(), &state);
    const double bias1 = 1 - std::pow(options_.beta1, state.steps);
    const double bias2 = 1 - std::pow(options_.beta2, state.steps);
    // lr m^ / (sqrt(v^) + epsilon), with both bias corrections moved out.
    const T rate = T(lr * std::sqrt(bias2) / bias1);
    const T epsilon = T(options_.epsilon * std::sqrt(bias2));
    const T beta1 = T(options_.beta1);
    const T beta2 = T(options_.beta2);
    const T rest1 = T(1 - options_.beta1);
    const T rest2 = T(1 - options_.beta2);
    const T decay = T(options_.weight_decay);
    for (size_t i = 0; i < parameters.size(); ++i) {
      T* p = parameters[i].data;
      const T* g = gradients[i].data;
      T* m = state.slots[i].data();
      T* v = state.slots[parameters.size() + i].data();
      for (int64_t j = 0; j < parameters[i].size(); ++j) {
        const T gradient = g[j] + decay * p[j];
        m[j] = beta1 * m[j] + rest1 * gradient;
        v[j] = beta2 * v[j] + rest2 * gradient * gradient;
        p[j] -= rate * m[j] / (std::sqrt(v[j]) + epsilon);
      }
    }
  }

 private:
  const AdamOptions options_;
};

}  // namespace

template <typename T>
std::unique_ptr<Optimizer<T>> CreateSgd(const SgdOptions& options) {
  return std::make_unique<Sgd<T>>(options);
}

template <typename T>
std::unique_ptr<Optimizer<T>> CreateAdam(const AdamOptions& options) {
  return std::make_unique<Adam<T>>(options);
}

template std::unique_ptr<Optimizer<float>> CreateSgd(const SgdOptions&);
template std::unique_ptr<Optimizer<double>> CreateSgd(const SgdOptions&);
template std::unique_ptr<Optimizer<float>> CreateAdam(const AdamOptions&);
template std::unique_ptr<Optimizer<double>> CreateAdam(const AdamOptions&);

}  // namespace kronserve::worker
