#include "tests/numerics/reference_kfac.h"

#include <algorithm>
#include <cmath>

namespace kronserve::numerics {
namespace {

Rows Zeros(size_t rows, size_t cols) {
  return Rows(rows, std::vector<double>(cols, 0.0));
}

Rows Product(const Rows& a, const Rows& b) {
  Rows c = Zeros(a.size(), b[0].size());
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t k = 0; k < b.size(); ++k) {
      for (size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
    }
  }
  return c;
}

// to -= factor * from.
void Subtract(double factor, const std::vector<double>& from,
              std::vector<double>* to) {
  for (size_t i = 0; i < from.size(); ++i) (*to)[i] -= factor * from[i];
}

// Gauss-Jordan with partial pivoting.
Rows Inverse(Rows m) {
  const size_t n = m.size();
  Rows inverse = Zeros(n, n);
  for (size_t i = 0; i < n; ++i) inverse[i][i] = 1;
  for (size_t col = 0; col < n; ++col) {
    size_t pivot = col;
    for (size_t row = col; row < n; ++row) {
      if (std::abs(m[row][col]) > std::abs(m[pivot][col])) pivot = row;
    }
    std::swap(m[col], m[pivot]);
    std::swap(inverse[col], inverse[pivot]);
    const double scale = 1 / m[col][col];
    for (size_t j = 0; j < n; ++j) {
      m[col][j] *= scale;
      inverse[col][j] *= scale;
    }
    for (size_t row = 0; row < n; ++row) {
      const double factor = m[row][col];
      if (row == col || factor == 0) continue;
      Subtract(factor, m[col], &m[row]);
      Subtract(factor, inverse[col], &inverse[row]);
    }
  }
  return inverse;
}

// Largest eigenvalue of a symmetric positive-definite matrix.
double LargestEigenvalue(const Rows& m) {
  Rows x = Zeros(m.size(), 1);
  for (size_t i = 0; i < m.size(); ++i) x[i][0] = 1 + 0.01 * double(i);
  double value = 0;
  for (int iteration = 0; iteration < 300; ++iteration) {
    x = Product(m, x);
    value = Norm(x);
    for (auto& row : x) row[0] /= value;
  }
  return value;
}

double Trace(const Rows& m) {
  double trace = 0;
  for (size_t i = 0; i < m.size(); ++i) trace += m[i][i];
  return trace;
}

Rows PlusDiagonal(Rows m, double value) {
  for (size_t i = 0; i < m.size(); ++i) m[i][i] += value;
  return m;
}

std::vector<double> WithOne(std::vector<double> row) {
  row.push_back(1);
  return row;
}

// sum += g x^T / divisor.
void AddOuter(const std::vector<double>& g, const std::vector<double>& x,
              double divisor, Rows* sum) {
  for (size_t i = 0; i < g.size(); ++i) {
    for (size_t j = 0; j < x.size(); ++j) (*sum)[i][j] += g[i] * x[j] / divisor;
  }
}

// mean over rows of x x^T.
Rows SecondMoment(const Rows& x, double divisor) {
  const size_t n = x[0].size();
  Rows moment = Zeros(n, n);
  for (const auto& row : x) AddOuter(row, row, divisor, &moment);
  return moment;
}

// Per-sample gradient of the cross-entropy with respect to the logits.
std::vector<double> LogitGradient(const std::vector<double>& logits,
                                  int label) {
  const double top = *std::max_element(logits.begin(), logits.end());
  std::vector<double> gradient(logits.size());
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    gradient[i] = std::exp(logits[i] - top);
    sum += gradient[i];
  }
  for (double& value : gradient) value /= sum;
  gradient[label] -= 1;
  return gradient;
}

// W a~.
std::vector<double> Forward(const Rows& weights,
                            const std::vector<double>& input) {
  std::vector<double> output(weights.size(), 0);
  for (size_t i = 0; i < weights.size(); ++i) {
    for (size_t j = 0; j < input.size(); ++j) {
      output[i] += weights[i][j] * input[j];
    }
  }
  return output;
}

// From the gradient of a layer's output to that of the layer below, whose tanh
// gave `input`.
std::vector<double> Backward(const Rows& weights,
                             const std::vector<double>& gradient,
                             const std::vector<double>& input) {
  std::vector<double> below(input.size() - 1, 0);
  for (size_t j = 0; j < below.size(); ++j) {
    for (size_t i = 0; i < gradient.size(); ++i) {
      below[j] += weights[i][j] * gradient[i];
    }
    below[j] *= 1 - input[j] * input[j];  // tanh'
  }
  return below;
}

struct Pass {
  std::vector<Rows> inputs;     // per layer: a~ of every sample
  std::vector<Rows> gradients;  // per layer: g of every sample
};

// Adds one sample's inputs and per-sample gradients of every layer.
void RunSample(const std::vector<Rows>& weights, std::vector<double> activation,
               int label, Pass* pass) {
  const size_t num_layers = weights.size();
  std::vector<std::vector<double>> inputs(num_layers);
  for (size_t l = 0; l < num_layers; ++l) {
    inputs[l] = WithOne(activation);
    activation = Forward(weights[l], inputs[l]);
    if (l + 1 == num_layers) break;
    for (double& value : activation) value = std::tanh(value);
  }
  std::vector<double> gradient = LogitGradient(activation, label);
  for (size_t l = num_layers; l-- > 0;) {
    pass->inputs[l].push_back(inputs[l]);
    pass->gradients[l].push_back(gradient);
    if (l == 0) break;
    gradient = Backward(weights[l], gradient, inputs[l]);
  }
}

// <a, b>.
double Dot(const Rows& a, const Rows& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[0].size(); ++j) sum += a[i][j] * b[i][j];
  }
  return sum;
}

void Blend(double weight_on_new, const Rows& batch, Rows* average) {
  if (average->empty()) *average = Zeros(batch.size(), batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    for (size_t j = 0; j < batch.size(); ++j) {
      (*average)[i][j] =
          (1 - weight_on_new) * (*average)[i][j] + weight_on_new * batch[i][j];
    }
  }
}

}  // namespace

double Norm(const Rows& a) {
  double sum = 0;
  for (const auto& row : a) {
    for (double value : row) sum += value * value;
  }
  return std::sqrt(sum);
}

double Distance(const Rows& a, const Rows& b) {
  Rows difference = a;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[0].size(); ++j) difference[i][j] -= b[i][j];
  }
  return Norm(difference);
}

double KlFactor(const std::vector<ReferenceLayer>& layers, double lr,
                double kl_clip) {
  double sum = 0;
  for (const ReferenceLayer& layer : layers) {
    sum += Dot(layer.gradient, layer.preconditioned);
  }
  return std::min(1.0, std::sqrt(kl_clip / std::abs(lr * lr * sum)));
}

ReferenceKfac::ReferenceKfac(const std::vector<int>& sizes,
                             const ReferenceOptions& options)
    : sizes_(sizes), options_(options), layers_(sizes.size() - 1) {}

std::vector<ReferenceLayer> ReferenceKfac::Step(
    int64_t step, const std::vector<Rows>& weights, const Rows& inputs,
    const std::vector<int>& labels) {
  Pass pass;
  pass.inputs.resize(layers_.size());
  pass.gradients.resize(layers_.size());
  for (size_t n = 0; n < inputs.size(); ++n) {
    RunSample(weights, inputs[n], labels[n], &pass);
  }
  if (step % options_.factor_update_steps == 0) {
    Average(pass.inputs, pass.gradients);
  }
  std::vector<ReferenceLayer> result(layers_.size());
  for (size_t l = 0; l < layers_.size(); ++l) {
    if (step % options_.inv_update_steps == 0) Refresh(&layers_[l]);
    Rows gradient = Zeros(sizes_[l + 1], sizes_[l] + 1);
    for (size_t n = 0; n < inputs.size(); ++n) {
      AddOuter(pass.gradients[l][n], pass.inputs[l][n], double(inputs.size()),
               &gradient);
    }
    result[l].preconditioned =
        Product(Product(layers_[l].g_inverse, gradient), layers_[l].a_inverse);
    result[l].gradient = std::move(gradient);
    result[l].condition = layers_[l].condition;
  }
  return result;
}

void ReferenceKfac::Average(const std::vector<Rows>& layer_inputs,
                            const std::vector<Rows>& layer_gradients) {
  for (size_t l = 0; l < layers_.size(); ++l) {
    Rows a = layer_inputs[l];
    Rows g = layer_gradients[l];
    if (options_.mutation == Mutation::kLastMicroBatchLost) {
      const size_t kept = a.size() - a.size() / options_.micro_batches;
      a.resize(kept);
      g.resize(kept);
    }
    if (options_.mutation == Mutation::kBiasColumnDropped) {
      for (auto& row : a) row.back() = 0;
    }
    const double n = double(a.size());
    const bool wrong = options_.mutation == Mutation::kWrongDivisor;
    LayerState& layer = layers_[l];
    const double k = double(++layer.updates);
    double weight = std::max(1 / k, 1 - options_.factor_decay);
    if (options_.mutation == Mutation::kAverageReversed && k > 1) {
      weight = 1 - weight;
    }
    Blend(weight, SecondMoment(a, n), &layer.a_average);
    Blend(weight, SecondMoment(g, wrong ? n * n : n), &layer.g_average);
  }
}

void ReferenceKfac::Refresh(LayerState* layer) {
  const Rows& a = layer->a_average;
  const Rows& g = layer->g_average;
  double pi =
      std::sqrt((Trace(a) / double(a.size())) / (Trace(g) / double(g.size())));
  if (options_.mutation == Mutation::kPiOne) pi = 1;
  double root = std::sqrt(options_.damping);
  if (options_.mutation == Mutation::kDampingTwice) root *= 2;
  const Rows damped_a = PlusDiagonal(a, pi * root);
  const Rows damped_g = PlusDiagonal(g, root / pi);
  layer->a_inverse = Inverse(damped_a);
  layer->g_inverse = Inverse(damped_g);
  layer->condition =
      LargestEigenvalue(damped_a) * LargestEigenvalue(layer->a_inverse) *
      LargestEigenvalue(damped_g) * LargestEigenvalue(layer->g_inverse);
  if (options_.mutation == Mutation::kFactorsSwapped && a.size() == g.size()) {
    std::swap(layer->a_inverse, layer->g_inverse);
  }
}

}  // namespace kronserve::numerics
