#include "server/checkpoint_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "checkpoint/durable_file.h"
#include "checkpoint/file_store.h"
#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "server/testing/core_driver.h"

namespace kronserve::server {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::SampleLayer;
using ::kronserve::testing::StatusIs;
using testing::CoreDriver;
using testing::DefaultCoreOptions;
using ::testing::HasSubstr;
using testing::MakeFactors;
using testing::MakeJob;
using testing::SyncOptions;

const v1::LayerSpec kLayer = SampleLayer("fc1", 1, 2);

// A disk that does not finish a file while it is held.
class HeldCalls final : public checkpoint::WriteCalls {
 public:
  int Rename(const std::string& from, const std::string& to) override {
    {
      MutexLock lock(&mu_);
      while (held_) changed_.WaitFor(&mu_, absl::Seconds(1));
    }
    return WriteCalls::Rename(from, to);
  }
  void Hold(bool held) {
    MutexLock lock(&mu_);
    held_ = held;
    changed_.NotifyAll();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool held_ ABSL_GUARDED_BY(mu_) = false;
};

class KeeperTest : public ::testing::Test {
 protected:
  KeeperTest() {
    std::filesystem::remove_all(directory_);
    config_ = MakeJob({kLayer}, 1, SyncOptions()).config();
    Open("s0");
  }
  ~KeeperTest() override { std::filesystem::remove_all(directory_); }

  void Open(const std::string& server) {
    checkpoint::FileStoreOptions options;
    options.directory = directory_;
    options.server = server;
    options.incarnation = 7;
    options.calls = &calls_;
    auto store = checkpoint::OpenFileStore(options);
    ASSERT_THAT(store, IsOk());
    store_ = *std::move(store);
  }

  // The layer after `rounds` rounds of world `world`.
  static LayerContents Contents(int64_t rounds, int64_t world) {
    CoreOptions options = DefaultCoreOptions();
    options.has_checkpoints = true;
    CoreDriver writer(options);
    EXPECT_THAT(writer.Configure(MakeJob({kLayer}, 1, SyncOptions())), IsOk());
    writer.FinishRestore(writer.executor.TakeRestores()[0], std::nullopt);
    for (int64_t step = 0; step < rounds; ++step) {
      EXPECT_THAT(writer.Push(0, step, MakeFactors(0, kLayer, 2, 1, 4)),
                  IsOk());
      EXPECT_THAT(writer.Commit(0, step), IsOk());
    }
    Effects effects;
    writer.core.CheckpointAll(&effects);
    LayerContents contents = effects.checkpoints.at(0).contents;
    contents.meta.set_world_version(world);
    return contents;
  }
  static LayerImage Image(int64_t rounds, int64_t world) {
    return PackLayer(Contents(rounds, world));
  }

  void WriteBackground(int64_t rounds, int64_t world) {
    const LayerImage image = Image(rounds, world);
    EXPECT_THAT(store_->WriteBackground(image.meta, image.tensors), IsOk());
  }

  void DamageBackground() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(
             directory_ + "/job/background")) {
      if (entry.is_regular_file()) std::filesystem::resize_file(entry, 100);
    }
  }

  // A complete job checkpoint after `rounds` rounds.
  void WriteJobCheckpoint(const std::string& id, int64_t rounds) {
    const LayerImage image = Image(rounds, 1);
    const auto file = store_->WriteJobLayer(id, image.meta, image.tensors);
    ASSERT_THAT(file, IsOk());
    v1::CheckpointManifest manifest;
    manifest.set_job("job");
    manifest.set_id(id);
    manifest.set_run_id("run");
    manifest.set_world_version(1);
    manifest.set_step(rounds - 1);
    *manifest.mutable_layers() = config_.layers();
    *manifest.mutable_options() = config_.options();
    *manifest.add_files() = *file;
    ASSERT_THAT(store_->CommitManifest(manifest), IsOk());
  }

  const std::string directory_ =
      ::testing::TempDir() + "checkpoint_keeper_test";
  v1::JobConfig config_;
  HeldCalls calls_;
  std::unique_ptr<checkpoint::CheckpointStore> store_;
};

TEST_F(KeeperTest, NothingWrittenNothingRestored) {
  const auto restored = RestoreLayer(*store_, config_, 0);
  ASSERT_THAT(restored, IsOk());
  EXPECT_FALSE(restored->has_value());
}

TEST_F(KeeperTest, NewestBackgroundCheckpointIsRestored) {
  WriteBackground(1, 1);
  WriteBackground(3, 1);
  const auto restored = RestoreLayer(*store_, config_, 0);
  ASSERT_THAT(restored, IsOk());
  ASSERT_TRUE(restored->has_value());
  EXPECT_EQ((*restored)->source, v1::RECOVERY_SOURCE_BACKGROUND_CHECKPOINT);
  EXPECT_EQ((*restored)->contents.meta.updates(), 3);
  EXPECT_EQ((*restored)->message, "");
}

TEST_F(KeeperTest, DamagedFilesAreNamed) {
  WriteBackground(1, 1);
  DamageBackground();
  EXPECT_THAT(
      RestoreLayer(*store_, config_, 0),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(directory_)));
}

TEST_F(KeeperTest, WorldStartsFromItsJobCheckpointNotFromWhatCameAfterIt) {
  WriteJobCheckpoint("good", 2);
  WriteBackground(4, 1);
  config_.set_restore_checkpoint("good");
  config_.mutable_world()->set_version(2);
  config_.mutable_world()->set_start_step(2);
  auto restored = RestoreLayer(*store_, config_, 0);
  ASSERT_THAT(restored, IsOk());
  EXPECT_EQ((*restored)->source, v1::RECOVERY_SOURCE_JOB_CHECKPOINT);
  EXPECT_EQ((*restored)->contents.meta.updates(), 2);
  // A server lost later in that world: its background checkpoints are newer.
  WriteBackground(3, 2);
  restored = RestoreLayer(*store_, config_, 0);
  ASSERT_THAT(restored, IsOk());
  EXPECT_EQ((*restored)->source, v1::RECOVERY_SOURCE_BACKGROUND_CHECKPOINT);
}

TEST_F(KeeperTest, StateThatIsOlderThanADamagedOneSaysSo) {
  WriteJobCheckpoint("good", 2);
  config_.set_restore_checkpoint("good");
  config_.mutable_world()->set_version(2);
  WriteBackground(3, 2);
  DamageBackground();
  const auto restored = RestoreLayer(*store_, config_, 0);
  ASSERT_THAT(restored, IsOk());
  EXPECT_EQ((*restored)->source, v1::RECOVERY_SOURCE_JOB_CHECKPOINT);
  EXPECT_THAT((*restored)->message, HasSubstr(directory_));
}

TEST_F(KeeperTest, MissingJobCheckpointIsAnError) {
  WriteBackground(4, 1);
  config_.set_restore_checkpoint("none");
  config_.mutable_world()->set_version(2);
  EXPECT_THAT(RestoreLayer(*store_, config_, 0),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

TEST_F(KeeperTest, WriteThatOutlastsItsRunLeavesNothing) {
  calls_.Hold(true);
  auto keeper = std::make_unique<CheckpointKeeper>(std::move(store_));
  keeper->Write({{}, "", Contents(1, 1)}, [](auto) {});
  keeper->Forget({"job", "run"});
  // The other thread is done with all that came before this.
  keeper->Commit({}, [this](const absl::Status&) { calls_.Hold(false); });
  keeper.reset();
  Open("s1");
  const auto restored = RestoreLayer(*store_, config_, 0);
  ASSERT_THAT(restored, IsOk());
  EXPECT_FALSE(restored->has_value());
}

TEST_F(KeeperTest, ForgetsOneRunAndKeepsTheOthers) {
  WriteBackground(1, 1);
  auto keeper = std::make_unique<CheckpointKeeper>(std::move(store_));
  keeper->Write({{}, "", Contents(2, 1)}, [](auto) {});
  keeper->Forget({"job", "another"});
  keeper.reset();
  Open("s1");
  auto restored = RestoreLayer(*store_, config_, 0);
  ASSERT_THAT(restored, IsOk());
  ASSERT_TRUE(restored->has_value());
  EXPECT_EQ((*restored)->contents.meta.updates(), 2);
  keeper = std::make_unique<CheckpointKeeper>(std::move(store_));
  keeper->Forget({"job", "run"});
  keeper.reset();
  Open("s2");
  restored = RestoreLayer(*store_, config_, 0);
  ASSERT_THAT(restored, IsOk());
  EXPECT_FALSE(restored->has_value());
}

TEST_F(KeeperTest, TellsWhetherEveryPeerKeepsItsLayersThere) {
  v1::ServerAddress peer;
  peer.set_name("s1");
  peer.set_incarnation(7);
  CheckpointKeeper keeper(std::move(store_));
  v1::ServerHeartbeatRequest request;
  keeper.FillRecovery(&request);
  EXPECT_EQ(request.state_recovery(), v1::STATE_RECOVERY_UNSPECIFIED);

  const auto await = [&](v1::StateRecovery expected) {
    const absl::Time end = SteadyClock().Now() + absl::Seconds(10);
    do {
      keeper.FillRecovery(&request);
      std::this_thread::yield();
    } while (request.state_recovery() != expected && SteadyClock().Now() < end);
    return request.state_recovery() == expected;
  };
  const absl::Time now = absl::UnixEpoch();
  keeper.SeePeers({peer}, now);
  ASSERT_TRUE(await(v1::STATE_RECOVERY_NONE));
  EXPECT_THAT(request.state_recovery_message(), HasSubstr("s1"));
  Open("s1");  // Writes its marker.
  keeper.SeePeers({peer}, now + absl::Seconds(10));
  EXPECT_TRUE(await(v1::STATE_RECOVERY_SHARED));
}

}  // namespace
}  // namespace kronserve::server
