#include "checkpoint/durable_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "checkpoint/folder.h"
#include "checkpoint/testing/failing_calls.h"
#include "checkpoint/testing/temporary_folder.h"
#include "common/status_macros.h"
#include "common/testing/status_matchers.h"

namespace kronserve::checkpoint {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DurableFileTest : public ::testing::Test {
 protected:
  DurableFileTest() {
    writer_.calls = &calls_;
    writer_.server = "s1";
    writer_.incarnation = 0xab;
  }

  absl::Status Write(const std::string& text) {
    DurableFile file(&writer_, path_, static_cast<int64_t>(text.size()));
    KRONSERVE_RETURN_IF_ERROR(
        file.Append(text.data(), static_cast<int64_t>(text.size())));
    return file.Commit();
  }

  std::vector<std::string> Names() { return *ListFolder(folder_.path()); }

  TemporaryFolder folder_;
  const std::string path_ = folder_ / "file";
  FailingCalls calls_;
  Writer writer_;
};

TEST_F(DurableFileTest, AppearsUnderItsNameOnlyWhenCommitted) {
  DurableFile file(&writer_, path_, 4);
  ASSERT_THAT(file.Append("ab", 2), IsOk());
  EXPECT_THAT(Names(), ElementsAre(".tmp-s1-00000000000000ab-0"));
  ASSERT_THAT(file.Append("cd", 2), IsOk());
  ASSERT_THAT(file.Commit(), IsOk());
  EXPECT_THAT(Names(), ElementsAre("file"));
  EXPECT_EQ(ReadBytes(path_), "abcd");
  EXPECT_EQ(calls_.syncs, 2);  // The file, then its folder.
}

TEST_F(DurableFileTest, OneThatIsNotCommittedLeavesNothing) {
  { DurableFile(&writer_, path_, 2).Append("ab", 2).IgnoreError(); }
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(DurableFileTest, ShortAndInterruptedWritesGoOn) {
  calls_.piece = 3;
  calls_.interrupts = 2;
  ASSERT_THAT(Write("0123456789"), IsOk());
  EXPECT_EQ(ReadBytes(path_), "0123456789");
}

TEST_F(DurableFileTest, AFullDiskNamesPathAndBytesAndKeepsTheOldFile) {
  ASSERT_THAT(Write("old"), IsOk());
  calls_.room = 6;
  EXPECT_THAT(
      Write("0123456789"),
      StatusIs(absl::StatusCode::kResourceExhausted,
               AllOf(HasSubstr("write '" + path_ + "' after 6 of 10 bytes"),
                     HasSubstr("No space left on device"))));
  EXPECT_THAT(Names(), ElementsAre("file"));
  EXPECT_EQ(ReadBytes(path_), "old");
}

TEST_F(DurableFileTest, EachFailingCallIsNamedAndLeavesNothing) {
  calls_.create_error = EACCES;
  EXPECT_THAT(Write("new"), StatusIs(absl::StatusCode::kPermissionDenied,
                                     HasSubstr("create '" + path_ +
                                               "' after "
                                               "0 of 3 bytes")));
  calls_.create_error = 0;
  calls_.failing_sync = 1;
  EXPECT_THAT(Write("new"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("sync '" + path_ +
                                                              "' after 3 "
                                                              "of 3 bytes")));
  calls_.failing_sync = 0;
  calls_.rename_error = EROFS;
  EXPECT_THAT(Write("new"), StatusIs(absl::StatusCode::kPermissionDenied,
                                     HasSubstr("rename '" + path_)));
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(DurableFileTest, AFolderThatCannotBeSyncedIsAnError) {
  calls_.failing_sync = 2;
  EXPECT_THAT(Write("new"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("sync '" + folder_.path() + "'")));
  // Some file systems have no such call; there is nothing more to do then.
  calls_.syncs = 0;
  calls_.sync_error = EINVAL;
  EXPECT_THAT(Write("new"), IsOk());
}

TEST_F(DurableFileTest, AQuotaIsAFullDisk) {
  calls_.room = 0;
  calls_.write_error = EDQUOT;
  EXPECT_THAT(Write("new"), StatusIs(absl::StatusCode::kResourceExhausted,
                                     HasSubstr("0 of 3")));
}

TEST_F(DurableFileTest, ARealRefusalOfTheSystemIsPassedOn) {
  EXPECT_THAT(MakeFolders(&writer_, "/proc/none/folder"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("make folder '/proc/none'")));
}

TEST_F(DurableFileTest, FoldersAreMadeAndSyncedFromTheTop) {
  ASSERT_THAT(MakeFolders(&writer_, folder_ / "a/b/c"), IsOk());
  EXPECT_TRUE(IsFolder(folder_ / "a/b/c"));
  EXPECT_EQ(calls_.syncs, 3);
  ASSERT_THAT(MakeFolders(&writer_, folder_ / "a/b/c"), IsOk());
  EXPECT_EQ(calls_.syncs, 3);
}

TEST_F(DurableFileTest, AFileInTheWayOfAFolderIsAnError) {
  WriteBytes(folder_ / "a", "x");
  EXPECT_FALSE(MakeFolders(&writer_, folder_ / "a/b").ok());
}

TEST_F(DurableFileTest, TemporariesOfDeadProcessesGo) {
  for (const char* name :
       {".tmp-s1-00000000000000ab-9",    // On its way.
        ".tmp-s1-00000000000000aa-1",    // Of an earlier process of s1.
        ".tmp-s1-x-00000000000000aa-1",  // Of server "s1-x".
        ".tmp-s10-00000000000000aa-1",   // Of server "s10".
        "epoch1-world1-step1.kron"}) {
    WriteBytes(folder_ / name, "x");
  }
  const absl::Time now = absl::Now();
  RemoveTemporaries(writer_, folder_.path(), now, absl::Hours(1));
  EXPECT_THAT(
      Names(),
      ElementsAre(".tmp-s1-00000000000000ab-9", ".tmp-s1-x-00000000000000aa-1",
                  ".tmp-s10-00000000000000aa-1", "epoch1-world1-step1.kron"));
  // Two hours later the others have not finished either.
  RemoveTemporaries(writer_, folder_.path(), now + absl::Hours(2),
                    absl::Hours(1));
  EXPECT_THAT(Names(), ElementsAre(".tmp-s1-00000000000000ab-9",
                                   "epoch1-world1-step1.kron"));
}

TEST(FolderTest, ListsRemovesAndSaysWhatIsMissing) {
  TemporaryFolder folder;
  EXPECT_THAT(ListFolder(folder / "none"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  WriteBytes(folder / "outside", "x");
  std::filesystem::create_directories(folder / "tree/deep");
  WriteBytes(folder / "tree/deep/file", "abc");
  std::filesystem::create_symlink(folder / "outside", folder / "tree/link");
  EXPECT_EQ(FileBytes(folder / "tree/deep/file"), 3);
  EXPECT_EQ(FileBytes(folder / "tree/none"), 0);
  EXPECT_THAT(RemoveTree(folder / "tree"), IsOk());
  EXPECT_THAT(RemoveTree(folder / "tree"), IsOk());
  EXPECT_THAT(*ListFolder(folder.path()), ElementsAre("outside"));
}

}  // namespace
}  // namespace kronserve::checkpoint
