#include "worker/training/dataset.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "worker/training/gzip_file.h"

namespace kronserve::worker {
namespace {

constexpr char kFashionDir[] = "/usr/share/datasets/fashion-mnist";
constexpr char kDigitsDir[] =
    "/usr/lib/python3/dist-packages/sklearn/datasets/data";
constexpr int64_t kClasses = 10;  // Of both data sets.
constexpr int64_t kMaxFileBytes = int64_t{1} << 30;

absl::Status FileError(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     const std::string& package) {
  auto content = ReadGzipFile(path, kMaxFileBytes);
  if (absl::IsNotFound(content.status())) {
    return absl::NotFoundError(absl::StrCat(
        content.status().message(), "; install the Debian package ", package,
        " or name the folder with --data-dir"));
  }
  return content;
}

// An IDX file of bytes: magic, sizes of the dimensions (big-endian), data.
struct Idx {
  std::vector<int64_t> dims;
  std::vector<uint8_t> bytes;
};

int64_t BigEndian32(const std::string& content, size_t offset) {
  int64_t value = 0;
  for (size_t i = 0; i < 4; ++i) {
    value = value << 8 | static_cast<uint8_t>(content[offset + i]);
  }
  return value;
}

absl::StatusOr<Idx> ReadIdx(const std::string& path, size_t num_dims) {
  KRONSERVE_ASSIGN_OR_RETURN(const std::string content,
                             ReadFile(path, "dataset-fashion-mnist"));
  const size_t header = 4 + 4 * num_dims;
  if (content.size() < header) {
    return FileError(
        path, absl::StrCat("IDX header of ", header,
                           " bytes expected, file has ", content.size()));
  }
  const int64_t magic = 0x800 + static_cast<int64_t>(num_dims);
  if (BigEndian32(content, 0) != magic) {
    return FileError(path,
                     absl::StrCat("IDX magic ", magic, " expected, found ",
                                  BigEndian32(content, 0)));
  }
  Idx idx;
  int64_t size = 1;
  for (size_t i = 0; i < num_dims; ++i) {
    const int64_t dim = BigEndian32(content, 4 + 4 * i);
    idx.dims.push_back(dim);
    // Below 2^30 before a factor below 2^32: no overflow.
    size = size > kMaxFileBytes ? size : size * dim;
  }
  const int64_t held = static_cast<int64_t>(content.size() - header);
  if (size != held) {
    return FileError(
        path, absl::StrCat("header announces ", absl::StrJoin(idx.dims, " x "),
                           " bytes, file holds ", held));
  }
  idx.bytes.assign(content.begin() + header, content.end());
  return idx;
}

absl::StatusOr<LabelledImages> ReadIdxPair(const std::string& prefix,
                                           Dataset* dataset) {
  const std::string image_path = prefix + "-images-idx3-ubyte.gz";
  const std::string label_path = prefix + "-labels-idx1-ubyte.gz";
  KRONSERVE_ASSIGN_OR_RETURN(Idx images, ReadIdx(image_path, 3));
  KRONSERVE_ASSIGN_OR_RETURN(Idx labels, ReadIdx(label_path, 1));
  if (images.dims[0] < 1 || images.dims[1] < 1 || images.dims[2] < 1) {
    return FileError(image_path, "holds no images");
  }
  if (images.dims[0] != labels.dims[0]) {
    return FileError(label_path, absl::StrCat(labels.dims[0], " labels for ",
                                              images.dims[0], " images"));
  }
  const uint8_t largest =
      *std::max_element(labels.bytes.begin(), labels.bytes.end());
  if (largest >= kClasses) {
    return FileError(label_path, absl::StrCat("label ", int{largest},
                                              " is not below ", kClasses));
  }
  if (dataset->height == 0) {
    dataset->height = images.dims[1];
    dataset->width = images.dims[2];
  }
  if (dataset->height != images.dims[1] || dataset->width != images.dims[2]) {
    return FileError(image_path,
                     absl::StrCat("images of ", images.dims[1], " x ",
                                  images.dims[2], ", training set has ",
                                  dataset->height, " x ", dataset->width));
  }
  return LabelledImages{std::move(images.bytes), std::move(labels.bytes)};
}

absl::StatusOr<Dataset> LoadFashionMnist(const std::string& dir) {
  Dataset dataset;
  dataset.classes = kClasses;
  KRONSERVE_ASSIGN_OR_RETURN(dataset.train,
                             ReadIdxPair(dir + "/train", &dataset));
  KRONSERVE_ASSIGN_OR_RETURN(dataset.test,
                             ReadIdxPair(dir + "/t10k", &dataset));
  return dataset;
}

// Adds one line, 64 pixels of 0 to 16 and a label, to `images`.
bool AddDigitsRow(const std::string& line, LabelledImages* images) {
  const std::vector<std::string> fields = absl::StrSplit(line, ',');
  if (fields.size() != 65) return false;
  for (size_t i = 0; i < fields.size(); ++i) {
    int value = 0;
    const int most = i < 64 ? 16 : int{kClasses} - 1;
    if (!absl::SimpleAtoi(fields[i], &value) || value < 0 || value > most) {
      return false;
    }
    (i < 64 ? images->pixels : images->labels).push_back(value);
  }
  return true;
}

absl::StatusOr<Dataset> LoadDigits(const std::string& dir) {
  const std::string path = dir + "/digits.csv.gz";
  KRONSERVE_ASSIGN_OR_RETURN(const std::string content,
                             ReadFile(path, "python3-sklearn"));
  Dataset dataset;
  dataset.classes = kClasses;
  dataset.height = 8;
  dataset.width = 8;
  int64_t row = 0;
  for (const auto line : absl::StrSplit(content, '\n', absl::SkipEmpty())) {
    LabelledImages& part = row % 5 == 4 ? dataset.test : dataset.train;
    ++row;
    if (!AddDigitsRow(std::string(line), &part)) {
      return FileError(path, absl::StrCat("line ", row,
                                          " is not 64 pixels of "
                                          "0 to 16 and a label of 0 to 9"));
    }
  }
  if (dataset.test.rows() == 0) {
    return FileError(path, absl::StrCat("only ", row, " rows"));
  }
  return dataset;
}

void MeasurePixels(Dataset* dataset) {
  double sum = 0;
  double squares = 0;
  for (const uint8_t pixel : dataset->train.pixels) {
    sum += pixel;
    squares += double{1} * pixel * pixel;
  }
  const double count = static_cast<double>(dataset->train.pixels.size());
  dataset->mean = sum / count;
  const double variance = squares / count - dataset->mean * dataset->mean;
  // Images of one colour carry nothing; they become zeros.
  dataset->stddev = variance > 0 ? std::sqrt(variance) : 1;
}

}  // namespace

absl::StatusOr<Dataset> LoadDataset(const std::string& name,
                                    const std::string& data_dir) {
  absl::StatusOr<Dataset> dataset = absl::InvalidArgumentError(
      absl::StrCat("data set '", name, "': use fashion-mnist or digits"));
  if (name == "fashion-mnist") {
    dataset = LoadFashionMnist(data_dir.empty() ? kFashionDir : data_dir);
  } else if (name == "digits") {
    dataset = LoadDigits(data_dir.empty() ? kDigitsDir : data_dir);
  }
  KRONSERVE_RETURN_IF_ERROR(dataset.status());
  dataset->name = name;
  MeasurePixels(&*dataset);
  return dataset;
}

template <typename T>
void CopyRows(const Dataset& dataset, const LabelledImages& images,
              const int64_t* rows, linalg::MatrixView<T> out, uint8_t* labels) {
  const int64_t size = dataset.image_size();
  const T scale = static_cast<T>(1 / dataset.stddev);
  const T shift = static_cast<T>(dataset.mean / dataset.stddev);
  for (int64_t i = 0; i < out.rows; ++i) {
    const uint8_t* from = images.pixels.data() + rows[i] * size;
    T* to = out.data + i * size;
    for (int64_t j = 0; j < size; ++j) to[j] = T(from[j]) * scale - shift;
    labels[i] = images.labels[rows[i]];
  }
}

template void CopyRows(const Dataset&, const LabelledImages&, const int64_t*,
                       linalg::MatrixView<float>, uint8_t*);
template void CopyRows(const Dataset&, const LabelledImages&, const int64_t*,
                       linalg::MatrixView<double>, uint8_t*);

}  // namespace kronserve::worker
