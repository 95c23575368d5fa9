// Job checkpoints through the store: complete or not there.

#include "checkpoint/job_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "checkpoint/folder.h"
#include "checkpoint/testing/store_fixture.h"

namespace kronserve::checkpoint {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JobFilesTest : public FileStoreTest {
 protected:
  // Writes both layers after step 50 and returns the manifest they make.
  v1::CheckpointManifest WriteLayers(uint64_t epoch = 3) {
    const v1::JobConfig job = SampleJob();
    v1::CheckpointManifest manifest;
    manifest.set_job(job.job());
    manifest.set_id("c1");
    manifest.set_run_id("run-1");
    manifest.set_world_version(2);
    manifest.set_step(50);
    *manifest.mutable_layers() = job.layers();
    *manifest.mutable_options() = job.options();
    for (const int layer : {1, 0}) {  // In no particular order.
      const StoredLayer state = SampleLayer(layer, epoch, 50);
      const auto file = store_->WriteJobLayer("c1", state.meta, state.tensors);
      EXPECT_TRUE(file.ok()) << file.status();
      *manifest.add_files() = *file;
    }
    return manifest;
  }

  std::string File(const std::string& name) {
    return directory_ + "/mnist/checkpoints/c1/" + name;
  }
};

TEST_F(JobFilesTest, IsThereWhenTheManifestIs) {
  const v1::CheckpointManifest manifest = WriteLayers();
  EXPECT_THAT(store_->ReadJobLayer(SampleJob(), 1, "c1"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("MANIFEST")));
  ASSERT_THAT(store_->CommitManifest(manifest), IsOk());
  EXPECT_THAT(store_->CommitManifest(manifest), IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const StoredLayer layer,
                                 store_->ReadJobLayer(SampleJob(), 1, "c1"));
  EXPECT_EQ(layer.meta.layer().name(), "fc2");
  EXPECT_EQ(layer.meta.closed_through(), 50);
  EXPECT_THAT(*layer.tensors[1], ElementsAre(7, 8, 9));
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const v1::CheckpointManifest read,
                                 store_->ReadManifest("mnist", "c1"));
  EXPECT_EQ(read.step(), 50);
  EXPECT_EQ(read.run_id(), "run-1");
  EXPECT_EQ(read.world_version(), 2);
  EXPECT_EQ(read.files(0).path(), "00000-fc1-epoch3.kron");
  EXPECT_EQ(read.files(1).path(), "00001-fc2-epoch3.kron");
}

TEST_F(JobFilesTest, AnotherRunMayStartFromIt) {
  ASSERT_THAT(store_->CommitManifest(WriteLayers()), IsOk());
  v1::JobConfig config = SampleJob();
  config.mutable_world()->set_run_id("run-2");
  EXPECT_THAT(store_->ReadJobLayer(config, 0, "c1"), IsOk());
}

TEST_F(JobFilesTest, AnotherTableIsRefused) {
  ASSERT_THAT(store_->CommitManifest(WriteLayers()), IsOk());
  v1::JobConfig config = SampleJob();
  config.mutable_layers(1)->set_d_in(30);
  // Layer 0 is as it was; the network is not.
  EXPECT_THAT(store_->ReadJobLayer(config, 0, "c1"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("layer 'fc2': d_in is 3 in the checkpoint, "
                                 "30 in the job")));
}

TEST_F(JobFilesTest, AManifestWithoutAllLayersIsRefused) {
  v1::CheckpointManifest manifest = WriteLayers();
  manifest.mutable_files()->RemoveLast();
  EXPECT_THAT(store_->CommitManifest(manifest),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("files: 1 for 2 layers")));
  *manifest.add_files() = manifest.files(0);
  EXPECT_THAT(store_->CommitManifest(manifest),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("missing or listed twice")));
}

TEST_F(JobFilesTest, AManifestOfFilesThatAreNotThereIsRefused) {
  const v1::CheckpointManifest manifest = WriteLayers();
  std::filesystem::remove(File("00001-fc2-epoch3.kron"));
  EXPECT_THAT(store_->CommitManifest(manifest),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("layer 'fc2' cannot be part of checkpoint "
                                 "'c1'")));
  std::filesystem::copy_file(File("00000-fc1-epoch3.kron"),
                             File("00001-fc2-epoch3.kron"));
  EXPECT_THAT(store_->CommitManifest(manifest),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("name is fc1 in the checkpoint, fc2")));
}

TEST_F(JobFilesTest, ALayerPastTheCutIsRefused) {
  v1::CheckpointManifest manifest = WriteLayers();
  manifest.set_step(49);
  EXPECT_THAT(store_->CommitManifest(manifest),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("closed_through is 50, past the cut after "
                                 "step 49")));
}

TEST_F(JobFilesTest, AFileOfAnotherSizeIsRefused) {
  v1::CheckpointManifest manifest = WriteLayers();
  manifest.mutable_files(0)->set_size_bytes(7);
  EXPECT_THAT(store_->CommitManifest(manifest),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(", 7 are listed")));
}

TEST_F(JobFilesTest, FilesOfReplacedOwnersGoWithTheManifest) {
  WriteLayers(/*epoch=*/3);
  const v1::CheckpointManifest manifest = WriteLayers(/*epoch=*/4);
  WriteBytes(File(".tmp-s9-00000000000000ff-0"), "half");
  ASSERT_THAT(store_->CommitManifest(manifest), IsOk());
  EXPECT_THAT(*ListFolder(File("")),
              ElementsAre("00000-fc1-epoch4.kron", "00001-fc2-epoch4.kron",
                          "MANIFEST"));
}

// A server that did not hear of another one's commit writes the manifest again,
// when the trainer may be there already.
TEST_F(JobFilesTest, TheTrainersFileStays) {
  const v1::CheckpointManifest manifest = WriteLayers();
  WriteBytes(File("TRAINER"), "state");
  WriteBytes(File(".tmp-trainer-00000000000000ab-0"), "half");
  ASSERT_THAT(store_->CommitManifest(manifest), IsOk());
  EXPECT_THAT(
      *ListFolder(File("")),
      ElementsAre(".tmp-trainer-00000000000000ab-0", "00000-fc1-epoch3.kron",
                  "00001-fc2-epoch3.kron", "MANIFEST", "TRAINER"));
}

TEST_F(JobFilesTest, ACompleteOneDoesNotChange) {
  v1::CheckpointManifest manifest = WriteLayers();
  ASSERT_THAT(store_->CommitManifest(manifest), IsOk());
  const StoredLayer late = SampleLayer(0, 2, 50);
  EXPECT_THAT(store_->WriteJobLayer("c1", late.meta, late.tensors),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("is complete already")));
  manifest.set_step(51);
  EXPECT_THAT(store_->CommitManifest(manifest),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("complete already, with another manifest")));
}

TEST_F(JobFilesTest, DamageIsNamed) {
  ASSERT_THAT(store_->CommitManifest(WriteLayers()), IsOk());
  // Another good file in its place, of the same size.
  StoredLayer other = SampleLayer(0, 3, 50);
  other.tensors[1] =
      std::make_shared<const std::vector<float>>(std::vector<float>{7, 8, 0});
  ASSERT_THAT(store_->WriteJobLayer("c2", other.meta, other.tensors), IsOk());
  const std::string path = File("00000-fc1-epoch3.kron");
  WriteBytes(path, ReadBytes(directory_ + "/mnist/checkpoints/c2/"
                                          "00000-fc1-epoch3.kron"));
  EXPECT_THAT(store_->ReadJobLayer(SampleJob(), 0, "c1"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("another file than the manifest lists")));

  std::string manifest = ReadBytes(File("MANIFEST"));
  for (size_t at = 0; at < manifest.size(); ++at) {
    std::string flipped = manifest;
    flipped[at] ^= 1;
    WriteBytes(File("MANIFEST"), flipped);
    const absl::Status status = store_->ReadManifest("mnist", "c1").status();
    EXPECT_TRUE(absl::IsDataLoss(status) || absl::IsFailedPrecondition(status))
        << at << ": " << status;
    WriteBytes(File("MANIFEST"), manifest.substr(0, at));
    EXPECT_THAT(store_->ReadManifest("mnist", "c1"),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("MANIFEST")))
        << at;
  }
}

TEST_F(JobFilesTest, AMovedManifestIsRefused) {
  ASSERT_THAT(store_->CommitManifest(WriteLayers()), IsOk());
  std::filesystem::rename(directory_ + "/mnist/checkpoints/c1",
                          directory_ + "/mnist/checkpoints/c9");
  EXPECT_THAT(store_->ReadManifest("mnist", "c9"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("id: is 'c1', the folder is 'c9'")));
}

TEST_F(JobFilesTest, ListsCompleteAndIncompleteOnes) {
  EXPECT_THAT(*store_->List("mnist"), IsEmpty());
  ASSERT_THAT(store_->CommitManifest(WriteLayers()), IsOk());
  const StoredLayer layer = SampleLayer(0, 3, 60);
  ASSERT_THAT(store_->WriteJobLayer("c2", layer.meta, layer.tensors), IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto list, store_->List("mnist"));
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].id, "c1");
  EXPECT_THAT(list[0].manifest, IsOk());
  EXPECT_EQ(list[1].id, "c2");
  EXPECT_THAT(list[1].manifest,
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("c2/MANIFEST")));
}

TEST_F(JobFilesTest, IdsStayInTheirFolder) {
  const StoredLayer layer = SampleLayer(0, 3, 50);
  const auto refused =
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'../x'"));
  EXPECT_THAT(store_->WriteJobLayer("../x", layer.meta, layer.tensors),
              refused);
  EXPECT_THAT(store_->ReadManifest("mnist", "../x"), refused);
  EXPECT_THAT(store_->ReadJobLayer(SampleJob(), 0, "../x"), refused);
  v1::CheckpointManifest manifest = WriteLayers();
  manifest.set_id("../x");
  EXPECT_THAT(store_->CommitManifest(manifest), refused);
}

}  // namespace
}  // namespace kronserve::checkpoint
