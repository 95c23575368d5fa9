#include "common/address_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "common/testing/status_matchers.h"

namespace kronserve {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::HasSubstr;

TEST(AddressFile, HoldsOneLine) {
  const std::string path = ::testing::TempDir() + "/address_file_test";
  ASSERT_THAT(WriteAddressFile(path, "127.0.0.1:1234"), IsOk());
  std::ifstream file(path);
  std::string line;
  EXPECT_TRUE(std::getline(file, line));
  EXPECT_EQ(line, "127.0.0.1:1234");
  EXPECT_FALSE(std::getline(file, line));
}

TEST(AddressFile, NoPathIsNoFile) {
  EXPECT_THAT(WriteAddressFile("", "127.0.0.1:1234"), IsOk());
}

TEST(AddressFile, NamesAFileThatCannotBeWritten) {
  EXPECT_THAT(WriteAddressFile("/no/such/folder/file", "127.0.0.1:1234"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("/no/such/folder/file")));
}

}  // namespace
}  // namespace kronserve
