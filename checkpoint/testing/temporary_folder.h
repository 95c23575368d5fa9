// A folder that is gone when the test is over, and whole files in it.

#ifndef KRONSERVE_CHECKPOINT_TESTING_TEMPORARY_FOLDER_H_
#define KRONSERVE_CHECKPOINT_TESTING_TEMPORARY_FOLDER_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace kronserve::checkpoint {

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(::testing::TempDir() + "checkpoint.XXXXXX") {
    EXPECT_NE(mkdtemp(path_.data()), nullptr) << path_;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const {
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

inline std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return std::string((std::istreambuf_iterator<char>(file)),
                     std::istreambuf_iterator<char>());
}

inline void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  EXPECT_TRUE(file.flush().good()) << path;
}

}  // namespace kronserve::checkpoint

#endif  // KRONSERVE_CHECKPOINT_TESTING_TEMPORARY_FOLDER_H_
