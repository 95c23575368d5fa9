#include "checkpoint/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/testing/store_fixture.h"
#include "checkpoint/testing/trainer_bytes.h"

namespace kronserve::checkpoint {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using State = VerifiedSet::State;

class VerifyTest : public FileStoreTest {
 protected:
  VerifyTest() {
    for (const int layer : {0, 1}) {
      for (const int64_t step : {10, 20 + layer}) {
        EXPECT_THAT(Write(SampleLayer(layer, 3, step)), IsOk());
      }
    }
    WriteCheckpoint("c1", 15, /*commit=*/true);
    WriteCheckpoint("c2", 25, /*commit=*/false);
  }

  void WriteCheckpoint(const std::string& id, int64_t step, bool commit) {
    const v1::JobConfig job = SampleJob();
    v1::CheckpointManifest manifest;
    manifest.set_job(job.job());
    manifest.set_id(id);
    manifest.set_step(step);
    *manifest.mutable_layers() = job.layers();
    *manifest.mutable_options() = job.options();
    for (const int layer : {0, 1}) {
      const StoredLayer state = SampleLayer(layer, 3, step);
      const auto file = store_->WriteJobLayer(id, state.meta, state.tensors);
      ASSERT_TRUE(file.ok()) << file.status();
      *manifest.add_files() = *file;
    }
    if (!commit) return;
    ASSERT_THAT(store_->CommitManifest(manifest), IsOk());
  }

  VerifyReport Run(const std::string& path) {
    auto report = Verify(path, [this](int64_t done, int64_t total) {
      progress_.emplace_back(done, total);
    });
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *std::move(report) : VerifyReport();
  }

  void Damage(const std::string& path) {
    std::string bytes = ReadBytes(path);
    bytes[bytes.size() - 20] ^= 1;
    WriteBytes(path, bytes);
  }

  std::vector<std::string> Names(const VerifyReport& report) {
    std::vector<std::string> names;
    for (const VerifiedSet& set : report.sets) names.push_back(set.name);
    return names;
  }

  std::vector<std::pair<int64_t, int64_t>> progress_;
};

TEST_F(VerifyTest, CountsWhatIsGood) {
  const VerifyReport report = Run(directory_);
  EXPECT_THAT(report.faults, IsEmpty());
  ASSERT_THAT(Names(report), ElementsAre("run-1", "c1", "c2"));
  const VerifiedSet& run = report.sets[0];
  EXPECT_EQ(run.job, "mnist");
  EXPECT_TRUE(run.background);
  EXPECT_EQ(run.layers, 2);
  EXPECT_EQ(run.layers_lost, 0);
  EXPECT_EQ(run.step, 21);
  EXPECT_EQ(run.files, 4);
  EXPECT_EQ(run.state, State::kGood);
  EXPECT_EQ(report.sets[1].layers, 2);
  EXPECT_EQ(report.sets[1].step, 15);
  EXPECT_EQ(report.sets[1].state, State::kGood);
  EXPECT_EQ(report.sets[2].layers, 0);
  EXPECT_EQ(report.sets[2].files, 2);
  EXPECT_EQ(report.sets[2].state, State::kIncomplete);
  // Every file, one after the other, until all bytes are read.
  int64_t total = 0;
  for (const VerifiedSet& set : report.sets) total += set.bytes;
  ASSERT_EQ(progress_.size(), 8u);
  EXPECT_EQ(progress_.back(), std::make_pair(total, total));
  EXPECT_LT(progress_.front().first, total);
}

TEST_F(VerifyTest, ADamagedFileIsNamedAndTheOtherOfItsLayerCounts) {
  const std::string path = Background("fc1", "epoch3-world2-step20.kron");
  Damage(path);
  const VerifyReport report = Run(directory_);
  EXPECT_THAT(report.faults, ElementsAre(HasSubstr(path)));
  EXPECT_EQ(report.sets[0].state, State::kDamaged);
  EXPECT_EQ(report.sets[0].layers, 2);
  EXPECT_EQ(report.sets[0].layers_lost, 0);
  EXPECT_EQ(report.sets[1].state, State::kGood);
}

TEST_F(VerifyTest, ALayerWithoutAGoodFileIsLost) {
  Damage(Background("fc1", "epoch3-world2-step20.kron"));
  Damage(Background("fc1", "epoch3-world2-step10.kron"));
  const VerifyReport report = Run(directory_);
  EXPECT_EQ(report.faults.size(), 2u);
  EXPECT_EQ(report.sets[0].layers, 1);
  EXPECT_EQ(report.sets[0].layers_lost, 1);
}

TEST_F(VerifyTest, ARenamedFileIsDamage) {
  std::filesystem::rename(Background("fc1", "epoch3-world2-step20.kron"),
                          Background("fc1", "epoch9-world2-step20.kron"));
  EXPECT_THAT(Run(directory_).faults, ElementsAre(HasSubstr("name: ")));
}

TEST_F(VerifyTest, DamageInAJobCheckpointIsNamed) {
  const std::string folder = directory_ + "/mnist/checkpoints/c1";
  Damage(folder + "/00001-fc2-epoch3.kron");
  VerifyReport report = Run(folder);
  ASSERT_THAT(Names(report), ElementsAre("c1"));
  EXPECT_THAT(report.faults, ElementsAre(HasSubstr("00001-fc2-epoch3.kron")));
  EXPECT_EQ(report.sets[0].state, State::kDamaged);
  EXPECT_EQ(report.sets[0].layers, 1);
  EXPECT_EQ(report.sets[0].layers_lost, 1);
  std::filesystem::remove(folder + "/00000-fc1-epoch3.kron");
  EXPECT_EQ(Run(folder).sets[0].layers_lost, 2);
  Damage(folder + "/MANIFEST");
  report = Run(folder);
  EXPECT_THAT(report.faults, ElementsAre(HasSubstr("MANIFEST")));
  EXPECT_EQ(report.sets[0].state, State::kDamaged);
}

TEST_F(VerifyTest, TheTrainersPartIsReadToo) {
  const std::string folder = directory_ + "/mnist/checkpoints/c1";
  WriteBytes(folder + "/TRAINER", TrainerBytes(2, 2, 3, 6));
  EXPECT_EQ(Run(folder).sets[0].state, State::kGood);
  ASSERT_FALSE(progress_.empty());
  EXPECT_EQ(progress_.back().first, progress_.back().second);
  Damage(folder + "/TRAINER");
  const VerifyReport report = Run(folder);
  EXPECT_EQ(report.sets[0].state, State::kDamaged);
  EXPECT_THAT(report.faults,
              ElementsAre(AllOf(HasSubstr("TRAINER"), HasSubstr("checksum"))));
}

TEST_F(VerifyTest, TakesAJobOrACheckpoint) {
  const std::string job = directory_ + "/mnist";
  EXPECT_THAT(Names(Run(directory_ + "/")), ElementsAre("run-1", "c1", "c2"));
  EXPECT_THAT(Names(Run(job)), ElementsAre("run-1", "c1", "c2"));
  EXPECT_THAT(Names(Run(job + "/checkpoints")),
              ElementsAre("run-1", "c1", "c2"));
  EXPECT_THAT(Names(Run(job + "/c1")), ElementsAre("c1"));
  EXPECT_THAT(Names(Run(job + "/checkpoints/c2/")), ElementsAre("c2"));
}

TEST_F(VerifyTest, WhatIsNotThereIsNotGood) {
  const auto ignore = [](int64_t, int64_t) {};
  EXPECT_THAT(Verify(directory_ + "/mnist/c9", ignore),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("nor a checkpoint 'c9'")));
  EXPECT_THAT(Verify(folder_ / "none", ignore),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  std::filesystem::create_directory(folder_ / "photos");
  EXPECT_THAT(Verify(folder_ / "photos", ignore),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("is not a checkpoint directory")));
}

TEST_F(VerifyTest, AnEmptyDirectoryOfServersIsGood) {
  std::filesystem::remove_all(directory_ + "/mnist");
  EXPECT_THAT(Run(directory_).sets, IsEmpty());
}

TEST_F(VerifyTest, HalfWrittenFilesAreNotLookedAt) {
  WriteBytes(Background("fc1", ".tmp-s1-0000000000000001-0"), "half");
  WriteBytes(directory_ + "/mnist/checkpoints/c1/.tmp-s1-1-0.kron", "half");
  EXPECT_THAT(Run(directory_).faults, IsEmpty());
}

}  // namespace
}  // namespace kronserve::checkpoint
