// A file store in a folder of its own, and shorthands for its files.

#ifndef KRONSERVE_CHECKPOINT_TESTING_STORE_FIXTURE_H_
#define KRONSERVE_CHECKPOINT_TESTING_STORE_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "checkpoint/file_store.h"
#include "checkpoint/testing/failing_calls.h"
#include "checkpoint/testing/sample_layer.h"
#include "checkpoint/testing/temporary_folder.h"
#include "common/testing/status_matchers.h"

namespace kronserve::checkpoint {

class FileStoreTest : public ::testing::Test {
 protected:
  FileStoreTest() { store_ = Open("s1", 1); }

  FileStoreOptions Options(const std::string& server, uint64_t incarnation) {
    FileStoreOptions options;
    options.directory = directory_;
    options.server = server;
    options.incarnation = incarnation;
    options.calls = &calls_;
    return options;
  }

  std::unique_ptr<CheckpointStore> Open(const std::string& server,
                                        uint64_t incarnation) {
    auto store = OpenFileStore(Options(server, incarnation));
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  absl::Status Write(CheckpointStore* store, const StoredLayer& layer) {
    return store->WriteBackground(layer.meta, layer.tensors).status();
  }
  absl::Status Write(const StoredLayer& layer) {
    return Write(store_.get(), layer);
  }

  // A file of the sample job.
  std::string Background(const std::string& layer, const std::string& name) {
    return directory_ + "/mnist/background/run-1/" + layer + "/" + name;
  }

  TemporaryFolder folder_;
  const std::string directory_ = folder_ / "checkpoints";
  FailingCalls calls_;
  std::unique_ptr<CheckpointStore> store_;
};

}  // namespace kronserve::checkpoint

#endif  // KRONSERVE_CHECKPOINT_TESTING_STORE_FIXTURE_H_
