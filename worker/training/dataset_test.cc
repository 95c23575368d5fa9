// The readers on small generated files, and on the packages' own.

#include "worker/training/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <zlib.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/testing/status_matchers.h"
#include "worker/training/gzip_file.h"

namespace kronserve::worker {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class DatasetTest : public ::testing::Test {
 protected:
  DatasetTest() {
    std::string name = ::testing::TempDir() + "/datasetXXXXXX";
    dir_ = mkdtemp(name.data());
  }
  ~DatasetTest() override { std::filesystem::remove_all(dir_); }

  std::string Path(const std::string& file) const { return dir_ + "/" + file; }

  void WriteGzip(const std::string& file, const std::string& content) {
    const gzFile out = gzopen(Path(file).c_str(), "wb");
    ASSERT_EQ(gzwrite(out, content.data(), content.size()),
              static_cast<int>(content.size()));
    ASSERT_EQ(gzclose(out), Z_OK);
  }

  void CutShort(const std::string& file) {
    const auto size = std::filesystem::file_size(Path(file));
    std::filesystem::resize_file(Path(file), size / 2);
  }

  // Two training images of 2 x 3 and one test image.
  void WriteFashion() {
    WriteGzip("train-images-idx3-ubyte.gz",
              Idx({2, 2, 3}, {0, 10, 20, 30, 40, 50, 0, 0, 0, 0, 0, 0}));
    WriteGzip("train-labels-idx1-ubyte.gz", Idx({2}, {9, 4}));
    WriteGzip("t10k-images-idx3-ubyte.gz", Idx({1, 2, 3}, {1, 2, 3, 4, 5, 6}));
    WriteGzip("t10k-labels-idx1-ubyte.gz", Idx({1}, {0}));
  }

  static std::string Idx(const std::vector<uint32_t>& dims,
                         const std::vector<uint8_t>& bytes) {
    std::string content = {0, 0, 8, static_cast<char>(dims.size())};
    for (const uint32_t dim : dims) {
      for (const int shift : {24, 16, 8, 0}) {
        content.push_back(static_cast<char>(dim >> shift & 255));
      }
    }
    return content.append(bytes.begin(), bytes.end());
  }

  absl::StatusOr<Dataset> LoadFashion() const {
    return LoadDataset("fashion-mnist", dir_);
  }
  absl::StatusOr<Dataset> LoadDigits() const {
    return LoadDataset("digits", dir_);
  }

  std::string dir_;
};

std::string DigitsLine(int pixel, int label) {
  return absl::StrCat(absl::StrJoin(std::vector<int>(64, pixel), ","), ",",
                      label, "\n");
}

TEST_F(DatasetTest, ReadsIdxFilesAndMeasuresTheTrainingPixels) {
  WriteFashion();
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Dataset data, LoadFashion());
  EXPECT_EQ(data.height, 2);
  EXPECT_EQ(data.width, 3);
  EXPECT_EQ(data.image_size(), 6);
  EXPECT_EQ(data.train.rows(), 2);
  EXPECT_EQ(data.test.rows(), 1);
  EXPECT_THAT(data.train.labels, ElementsAre(9, 4));
  EXPECT_THAT(data.test.pixels, ElementsAre(1, 2, 3, 4, 5, 6));
  // Sum 150 and sum of squares 5500 over 12 pixels.
  EXPECT_DOUBLE_EQ(data.mean, 12.5);
  EXPECT_DOUBLE_EQ(data.stddev, std::sqrt(5500.0 / 12 - 12.5 * 12.5));
}

TEST_F(DatasetTest, CopiesRowsNormalised) {
  WriteFashion();
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Dataset data, LoadFashion());
  const int64_t rows[] = {1, 0};
  linalg::Matrix<double> out(2, 6);
  uint8_t labels[2];
  CopyRows(data, data.train, rows, out.view(), labels);
  EXPECT_THAT(labels, ElementsAre(4, 9));
  EXPECT_NEAR(out(0, 0), -12.5 / data.stddev, 1e-14);
  EXPECT_NEAR(out(1, 5), 37.5 / data.stddev, 1e-14);
}

TEST_F(DatasetTest, AMissingFileNamesThePackageToInstall) {
  EXPECT_THAT(LoadFashion(),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("train-images-idx3-ubyte.gz"),
                             HasSubstr("dataset-fashion-mnist"),
                             HasSubstr("--data-dir"))));
  EXPECT_THAT(LoadDigits(), StatusIs(absl::StatusCode::kNotFound,
                                     AllOf(HasSubstr("digits.csv.gz"),
                                           HasSubstr("python3-sklearn"))));
}

TEST_F(DatasetTest, AnUnknownNameListsTheKnownOnes) {
  EXPECT_THAT(LoadDataset("mnist", ""),
              StatusIs(kInvalid, AllOf(HasSubstr("'mnist'"),
                                       HasSubstr("fashion-mnist or digits"))));
}

TEST_F(DatasetTest, AFileThatEndsInsideTheGzipDataIsRefused) {
  WriteFashion();
  // Bytes that do not compress, so that half a file is half the data.
  std::vector<uint8_t> noise;
  for (uint32_t i = 0; i < 6000; ++i) noise.push_back(i * 2654435761u >> 13);
  WriteGzip("train-images-idx3-ubyte.gz", Idx({1000, 2, 3}, noise));
  CutShort("train-images-idx3-ubyte.gz");
  EXPECT_THAT(LoadFashion(), StatusIs(kInvalid, AllOf(HasSubstr("train-images"),
                                                      HasSubstr("cut short"))));
}

TEST_F(DatasetTest, AWrongMagicIsRefused) {
  WriteFashion();
  WriteGzip("train-labels-idx1-ubyte.gz", Idx({2, 1, 1}, {1, 2}));
  EXPECT_THAT(LoadFashion(),
              StatusIs(kInvalid, AllOf(HasSubstr("train-labels"),
                                       HasSubstr("magic 2049 expected"),
                                       HasSubstr("2051"))));
}

TEST_F(DatasetTest, AHeaderAloneIsRefused) {
  WriteFashion();
  WriteGzip("train-images-idx3-ubyte.gz", std::string("\0\0\x08\x03\0", 5));
  EXPECT_THAT(LoadFashion(), StatusIs(kInvalid, HasSubstr("16 bytes expected, "
                                                          "file has 5")));
}

TEST_F(DatasetTest, AHeaderThatAnnouncesMoreThanThereIsAllocatesNothing) {
  WriteFashion();
  // 2^96 bytes would overflow 64 bits.
  WriteGzip("train-images-idx3-ubyte.gz",
            Idx({4294967295u, 4294967295u, 4294967295u}, {1, 2, 3}));
  EXPECT_THAT(LoadFashion(),
              StatusIs(kInvalid, AllOf(HasSubstr("4294967295 x 4294967295"),
                                       HasSubstr("file holds 3"))));
}

TEST_F(DatasetTest, BytesTooFewOrTooManyAreRefused) {
  WriteFashion();
  WriteGzip("t10k-images-idx3-ubyte.gz", Idx({1, 2, 3}, {1, 2, 3, 4, 5}));
  EXPECT_THAT(LoadFashion(), StatusIs(kInvalid, HasSubstr("file holds 5")));
  WriteGzip("t10k-images-idx3-ubyte.gz", Idx({1, 2, 3}, {1, 2, 3, 4, 5, 6, 7}));
  EXPECT_THAT(LoadFashion(), StatusIs(kInvalid, HasSubstr("file holds 7")));
}

TEST_F(DatasetTest, ImagesAndLabelsMustAgree) {
  WriteFashion();
  WriteGzip("train-labels-idx1-ubyte.gz", Idx({3}, {1, 2, 3}));
  EXPECT_THAT(LoadFashion(),
              StatusIs(kInvalid, HasSubstr("3 labels for 2 images")));
  WriteGzip("train-labels-idx1-ubyte.gz", Idx({2}, {1, 10}));
  EXPECT_THAT(LoadFashion(),
              StatusIs(kInvalid, HasSubstr("label 10 is not below 10")));
}

TEST_F(DatasetTest, TestImagesMustHaveTheTrainingShape) {
  WriteFashion();
  WriteGzip("t10k-images-idx3-ubyte.gz", Idx({1, 3, 2}, {1, 2, 3, 4, 5, 6}));
  EXPECT_THAT(LoadFashion(), StatusIs(kInvalid, HasSubstr("3 x 2")));
}

TEST_F(DatasetTest, NoImagesAreRefused) {
  WriteFashion();
  WriteGzip("train-images-idx3-ubyte.gz", Idx({0, 2, 3}, {}));
  EXPECT_THAT(LoadFashion(), StatusIs(kInvalid, HasSubstr("no images")));
}

TEST_F(DatasetTest, ReadsDigitsWithEveryFifthRowAsTest) {
  std::string content;
  for (int row = 0; row < 11; ++row) content += DigitsLine(row, row % 10);
  WriteGzip("digits.csv.gz", content);
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Dataset data, LoadDigits());
  EXPECT_EQ(data.train.rows(), 9);
  EXPECT_THAT(data.test.labels, ElementsAre(4, 9));
  EXPECT_EQ(data.test.pixels[64], 9);
}

TEST_F(DatasetTest, ABadLineOfDigitsIsNamed) {
  for (const std::string& line :
       {DigitsLine(17, 0), DigitsLine(-1, 0), DigitsLine(1, 10),
        std::string("1,2,3\n"), "x" + DigitsLine(1, 1)}) {
    WriteGzip("digits.csv.gz", DigitsLine(1, 1) + line);
    EXPECT_THAT(LoadDigits(), StatusIs(kInvalid, HasSubstr("line 2")));
  }
  WriteGzip("digits.csv.gz", DigitsLine(1, 1));
  EXPECT_THAT(LoadDigits(), StatusIs(kInvalid, HasSubstr("only 1 rows")));
}

TEST_F(DatasetTest, ReadsTheInstalledPackages) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Dataset digits,
                                 LoadDataset("digits", ""));
  EXPECT_EQ(digits.train.rows() + digits.test.rows(), 1797);
  EXPECT_EQ(digits.train.pixels[0], 0);
  EXPECT_EQ(digits.train.pixels[2], 5);  // The file starts 0,0,5,13.
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Dataset fashion,
                                 LoadDataset("fashion-mnist", ""));
  EXPECT_EQ(fashion.train.rows(), 60'000);
  EXPECT_EQ(fashion.test.rows(), 10'000);
  EXPECT_EQ(fashion.image_size(), 784);
  // As published with the data set: 0.2860 and 0.3530 of full scale.
  EXPECT_NEAR(fashion.mean / 255, 0.2860, 1e-4);
  EXPECT_NEAR(fashion.stddev / 255, 0.3530, 1e-4);
}

TEST_F(DatasetTest, GzipFilesHaveALimit) {
  WriteGzip("zeros.gz", std::string(5000, '\0'));
  EXPECT_THAT(ReadGzipFile(Path("zeros.gz"), 4999),
              StatusIs(kInvalid, HasSubstr("more than 4999 bytes")));
  EXPECT_THAT(ReadGzipFile(Path("zeros.gz"), 5000), IsOk());
}

TEST_F(DatasetTest, GzipFilesThatCannotBeReadSayWhy) {
  EXPECT_THAT(ReadGzipFile(Path("none"), 1),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  EXPECT_THAT(ReadGzipFile(dir_, 1), StatusIs(kInvalid, HasSubstr(dir_)));
  // A flipped byte fails the check at the end of the gzip data.
  WriteGzip("damaged.gz", "kronecker factors");
  std::fstream file(Path("damaged.gz"),
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-6, std::ios::end);
  file.put('!');
  file.close();
  EXPECT_THAT(ReadGzipFile(Path("damaged.gz"), 100),
              StatusIs(kInvalid, HasSubstr("damaged")));
}

}  // namespace
}  // namespace kronserve::worker
