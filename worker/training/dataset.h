// Labelled images from Debian packages, ready for training.
//
// Layer: worker. May include linalg/ and common/.

#ifndef KRONSERVE_WORKER_TRAINING_DATASET_H_
#define KRONSERVE_WORKER_TRAINING_DATASET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "linalg/matrix_view.h"

namespace kronserve::worker {

// Images as the bytes they are stored in: a quarter of the memory of floats.
struct LabelledImages {
  std::vector<uint8_t> pixels;  // [rows, image_size]
  std::vector<uint8_t> labels;  // [rows], below `classes`.

  int64_t rows() const { return static_cast<int64_t>(labels.size()); }
};

struct Dataset {
  std::string name;
  // An image is [channels, height, width].
  int64_t channels = 1;
  int64_t height = 0;
  int64_t width = 0;
  int64_t classes = 0;
  LabelledImages train;
  LabelledImages test;
  // Over all pixels of the training set.
  double mean = 0;
  double stddev = 1;

  int64_t image_size() const { return channels * height * width; }
};

// Reads "fashion-mnist" (Debian package dataset-fashion-mnist; 60,000 and
// 10,000 images of 28 x 28) or "digits" (python3-sklearn; 1,797 images of 8 x
// 8, every fifth row is test).
//
//   data_dir  the folder with the files; empty: where the package puts them.
//
// Errors:
//   kNotFound         a file is missing; names it and the package to install.
//   kInvalidArgument  unknown name, or a file that does not hold what its
//                     format says; names the file and the numbers.
absl::StatusOr<Dataset> LoadDataset(const std::string& name,
                                    const std::string& data_dir);

// Copies rows of `images`, normalised to mean 0 and variance 1, to `out`
// [count, image_size], and their labels to `labels` [count].
//
//   rows  [count], the count being the rows of `out`.
template <typename T>
void CopyRows(const Dataset& dataset, const LabelledImages& images,
              const int64_t* rows, linalg::MatrixView<T> out, uint8_t* labels);

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_TRAINING_DATASET_H_
