#include "worker/training/loss.h"

#include <algorithm>
#include <cmath>

namespace kronserve::worker {

template <typename T>
double SoftmaxCrossEntropy(linalg::ConstMatrixView<T> logits,
                           const uint8_t* labels,
                           linalg::MatrixView<T> gradient) {
  double total = 0;
  for (int64_t row = 0; row < logits.rows; ++row) {
    const T* z = &logits(row, 0);
    const double largest = *std::max_element(z, z + logits.cols);
    double sum = 0;
    for (int64_t j = 0; j < logits.cols; ++j) sum += std::exp(z[j] - largest);
    const double log_sum = largest + std::log(sum);
    total += log_sum - z[labels[row]];
    if (gradient.data == nullptr) continue;
    for (int64_t j = 0; j < logits.cols; ++j) {
      const double target = j == labels[row] ? 1 : 0;
      gradient(row, j) =
          T((std::exp(z[j] - log_sum) - target) / double(logits.rows));
    }
  }
  return total / double(logits.rows);
}

template <typename T>
int64_t CountCorrect(linalg::ConstMatrixView<T> logits, const uint8_t* labels) {
  int64_t correct = 0;
  for (int64_t row = 0; row < logits.rows; ++row) {
    const T* z = &logits(row, 0);
    if (std::max_element(z, z + logits.cols) - z == labels[row]) ++correct;
  }
  return correct;
}

template double SoftmaxCrossEntropy(linalg::ConstMatrixView<float>,
                                    const uint8_t*, linalg::MatrixView<float>);
template double SoftmaxCrossEntropy(linalg::ConstMatrixView<double>,
                                    const uint8_t*, linalg::MatrixView<double>);
template int64_t CountCorrect(linalg::ConstMatrixView<float>, const uint8_t*);
template int64_t CountCorrect(linalg::ConstMatrixView<double>, const uint8_t*);

}  // namespace kronserve::worker
