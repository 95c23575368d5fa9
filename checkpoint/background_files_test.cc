// Background checkpoints through the store: what is found again, and what is
// passed over and said.

#include "checkpoint/background_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "checkpoint/folder.h"
#include "checkpoint/testing/store_fixture.h"

namespace kronserve::checkpoint {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using BackgroundFilesTest = FileStoreTest;

int64_t StepOf(const Newest& newest) {
  return newest.layer.has_value() ? newest.layer->meta.closed_through() : -2;
}

TEST_F(BackgroundFilesTest, TheNewestComesBackWithItsValues) {
  ASSERT_THAT(Write(SampleLayer(0, 3, 10)), IsOk());
  ASSERT_THAT(Write(SampleLayer(0, 3, 20)), IsOk());
  const Newest newest = store_->ReadNewest(SampleJob(), 0);
  ASSERT_TRUE(newest.layer.has_value());
  EXPECT_THAT(newest.skipped, IsEmpty());
  EXPECT_EQ(newest.layer->meta.closed_through(), 20);
  EXPECT_EQ(newest.layer->meta.updates(), 21);
  EXPECT_THAT(*newest.layer->tensors[0], ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(*newest.layer->tensors[1], ElementsAre(7, 8, 9));
}

TEST_F(BackgroundFilesTest, ALayerThatWasNeverSavedHasNone) {
  ASSERT_THAT(Write(SampleLayer(0, 3, 10)), IsOk());
  const Newest newest = store_->ReadNewest(SampleJob(), 1);
  EXPECT_FALSE(newest.layer.has_value());
  EXPECT_THAT(newest.skipped, IsEmpty());
}

TEST_F(BackgroundFilesTest, TheNewestFewAreKept) {
  for (const int64_t step : {8, 9, 10, 11}) {
    ASSERT_THAT(Write(SampleLayer(0, 3, step)), IsOk());
  }
  EXPECT_THAT(
      *ListFolder(Background("fc1", "")),
      ElementsAre("epoch3-world2-step10.kron", "epoch3-world2-step11.kron"));
  FileStoreOptions options = Options("s1", 1);
  options.keep = 1;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto store, OpenFileStore(options));
  ASSERT_THAT(Write(store.get(), SampleLayer(0, 3, 12)), IsOk());
  EXPECT_THAT(*ListFolder(Background("fc1", "")),
              ElementsAre("epoch3-world2-step12.kron"));
}

TEST_F(BackgroundFilesTest, ALateWriteOfAnOldOwnerShadowsNothing) {
  const auto old_owner = Open("s2", 2);
  ASSERT_THAT(Write(SampleLayer(0, 4, 100)), IsOk());
  ASSERT_THAT(Write(SampleLayer(0, 4, 110)), IsOk());
  // Epoch 3 goes on for longer, writes last, and with a higher step.
  ASSERT_THAT(Write(old_owner.get(), SampleLayer(0, 3, 500)), IsOk());
  EXPECT_EQ(StepOf(store_->ReadNewest(SampleJob(), 0)), 110);
  EXPECT_THAT(
      *ListFolder(Background("fc1", "")),
      ElementsAre("epoch4-world2-step100.kron", "epoch4-world2-step110.kron"));
}

TEST_F(BackgroundFilesTest, ANewWorldThatWentBackIsNewer) {
  StoredLayer restarted = SampleLayer(0, 3, 1000);
  restarted.meta.set_world_version(3);
  ASSERT_THAT(Write(SampleLayer(0, 3, 1042)), IsOk());
  ASSERT_THAT(Write(restarted), IsOk());
  EXPECT_EQ(StepOf(store_->ReadNewest(SampleJob(), 0)), 1000);
}

TEST_F(BackgroundFilesTest, ADamagedFileIsSkippedAndNamed) {
  ASSERT_THAT(Write(SampleLayer(0, 3, 10)), IsOk());
  ASSERT_THAT(Write(SampleLayer(0, 3, 20)), IsOk());
  const std::string path = Background("fc1", "epoch3-world2-step20.kron");
  std::string bytes = ReadBytes(path);
  bytes[bytes.size() - 20] ^= 4;
  WriteBytes(path, bytes);
  const Newest newest = store_->ReadNewest(SampleJob(), 0);
  EXPECT_EQ(StepOf(newest), 10);
  EXPECT_THAT(newest.skipped,
              ElementsAre(AllOf(HasSubstr(path), HasSubstr("checksum"))));
}

TEST_F(BackgroundFilesTest, WhenNoneIsGoodEveryOneIsNamed) {
  ASSERT_THAT(Write(SampleLayer(0, 3, 10)), IsOk());
  ASSERT_THAT(Write(SampleLayer(0, 3, 20)), IsOk());
  WriteBytes(Background("fc1", "epoch3-world2-step10.kron"), "");
  WriteBytes(Background("fc1", "epoch3-world2-step20.kron"), "KRONLAYR");
  const Newest newest = store_->ReadNewest(SampleJob(), 0);
  EXPECT_FALSE(newest.layer.has_value());
  EXPECT_THAT(newest.skipped, ElementsAre(HasSubstr("truncated to 8 bytes"),
                                          HasSubstr("is empty")));
}

TEST_F(BackgroundFilesTest, AnotherLayerTableOrOptionsAreRefused) {
  ASSERT_THAT(Write(SampleLayer(0, 3, 10)), IsOk());
  v1::JobConfig config = SampleJob();
  config.mutable_layers(0)->set_d_in(30);
  EXPECT_THAT(store_->ReadNewest(config, 0).skipped,
              ElementsAre(HasSubstr("d_in is 3 in the checkpoint, 30")));
  config = SampleJob();
  config.mutable_options()->set_method(v1::COMPUTE_METHOD_EIGEN);
  EXPECT_THAT(store_->ReadNewest(config, 0).skipped,
              ElementsAre(HasSubstr("method is COMPUTE_METHOD_INVERSE")));
}

TEST_F(BackgroundFilesTest, ARenamedFileIsNotNewer) {
  ASSERT_THAT(Write(SampleLayer(0, 3, 10)), IsOk());
  std::filesystem::rename(Background("fc1", "epoch3-world2-step10.kron"),
                          Background("fc1", "epoch9-world2-step10.kron"));
  const Newest newest = store_->ReadNewest(SampleJob(), 0);
  EXPECT_FALSE(newest.layer.has_value());
  EXPECT_THAT(newest.skipped,
              ElementsAre(HasSubstr("name: the header belongs to "
                                    "epoch3-world2-step10.kron")));
}

TEST_F(BackgroundFilesTest, ACopyFromAnotherRunIsRefused) {
  ASSERT_THAT(Write(SampleLayer(0, 3, 10)), IsOk());
  v1::JobConfig config = SampleJob();
  config.mutable_world()->set_run_id("run-2");
  EXPECT_FALSE(store_->ReadNewest(config, 0).layer.has_value());
  std::filesystem::rename(directory_ + "/mnist/background/run-1",
                          directory_ + "/mnist/background/run-2");
  EXPECT_THAT(store_->ReadNewest(config, 0).skipped,
              ElementsAre(HasSubstr("run_id is 'run-1' in the checkpoint, "
                                    "'run-2' in the job")));
}

TEST_F(BackgroundFilesTest, AFullDiskKeepsWhatWasThere) {
  ASSERT_THAT(Write(SampleLayer(0, 3, 10)), IsOk());
  calls_.room = 100;
  EXPECT_THAT(Write(SampleLayer(0, 3, 20)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("epoch3-world2-step20.kron"),
                             HasSubstr("after 100 of "))));
  EXPECT_EQ(StepOf(store_->ReadNewest(SampleJob(), 0)), 10);
  EXPECT_THAT(*ListFolder(Background("fc1", "")),
              ElementsAre("epoch3-world2-step10.kron"));
}

TEST_F(BackgroundFilesTest, TemporariesOfTheDeadAreRemovedOnTheWay) {
  ASSERT_THAT(Write(SampleLayer(0, 3, 10)), IsOk());
  WriteBytes(Background("fc1", ".tmp-s1-00000000000000ff-0"), "half");
  ASSERT_THAT(Write(SampleLayer(0, 3, 20)), IsOk());
  EXPECT_THAT(
      *ListFolder(Background("fc1", "")),
      ElementsAre("epoch3-world2-step10.kron", "epoch3-world2-step20.kron"));
}

TEST_F(BackgroundFilesTest, HostileNamesStayInTheirFolder) {
  StoredLayer layer = SampleLayer(0, 3, 10);
  layer.meta.set_job("../../evil");
  layer.meta.set_run_id("..");
  layer.meta.mutable_layer()->set_name("/etc/passwd");
  ASSERT_THAT(Write(layer), IsOk());
  EXPECT_TRUE(std::filesystem::exists(
      directory_ +
      "/%2E.%2F..%2Fevil/background/%2E./%2Fetc%2Fpasswd/"
      "epoch3-world2-step10.kron"));
  EXPECT_THAT(*ListFolder(folder_.path()), ElementsAre("checkpoints"));
}

TEST_F(BackgroundFilesTest, AFinishedRunLeavesOnlyOtherRuns) {
  StoredLayer other = SampleLayer(0, 1, 5);
  other.meta.set_run_id("run-2");
  ASSERT_THAT(Write(SampleLayer(0, 3, 10)), IsOk());
  ASSERT_THAT(Write(SampleLayer(1, 3, 10)), IsOk());
  ASSERT_THAT(Write(other), IsOk());
  EXPECT_THAT(store_->RemoveBackground("mnist", "run-1"), IsOk());
  EXPECT_THAT(store_->RemoveBackground("mnist", "run-1"), IsOk());
  EXPECT_THAT(store_->RemoveBackground("unknown", "run-1"), IsOk());
  EXPECT_THAT(*ListFolder(directory_ + "/mnist/background"),
              ElementsAre("run-2"));
}

TEST_F(BackgroundFilesTest, ADirectoryThatIsGoneIsNotMadeAnew) {
  std::filesystem::remove_all(directory_);
  std::filesystem::create_directory(directory_);  // As an empty mount point.
  EXPECT_THAT(Write(SampleLayer(0, 3, 10)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("still mounted")));
  EXPECT_THAT(*ListFolder(directory_), IsEmpty());
}

TEST_F(BackgroundFilesTest, AStateThatContradictsItselfIsNotWritten) {
  StoredLayer layer = SampleLayer(0, 3, 10);
  layer.meta.clear_published();
  EXPECT_THAT(Write(layer), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("FACTORIZATION_A")));
}

}  // namespace
}  // namespace kronserve::checkpoint
