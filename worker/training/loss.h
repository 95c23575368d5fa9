// The loss of a classifier.
//
// Layer: worker. May include linalg/ and common/.

#ifndef KRONSERVE_WORKER_TRAINING_LOSS_H_
#define KRONSERVE_WORKER_TRAINING_LOSS_H_

#include <cstdint>

#include "linalg/matrix_view.h"

namespace kronserve::worker {

// Mean over the rows of -log softmax(logits)[label].
//
//   logits    [rows, classes], rows >= 1.
//   labels    [rows], below classes.
//   gradient  [rows, classes], written: of the mean loss in the logits; a view
//             without data is left alone.
template <typename T>
double SoftmaxCrossEntropy(linalg::ConstMatrixView<T> logits,
                           const uint8_t* labels,
                           linalg::MatrixView<T> gradient);

// Rows whose largest logit is that of their label.
template <typename T>
int64_t CountCorrect(linalg::ConstMatrixView<T> logits, const uint8_t* labels);

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_TRAINING_LOSS_H_
