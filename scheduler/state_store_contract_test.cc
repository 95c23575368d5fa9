// What every StateStore must do, and what only the SQLite one does; what only
// the etcd one does is in etcd/etcd_test.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "scheduler/etcd/factory.h"
#include "scheduler/memory/factory.h"
#include "scheduler/sqlite/factory.h"
#include "scheduler/state_store.h"
#include "scheduler/testing/etcd_process.h"

namespace kronserve::scheduler {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// A folder of its own, removed with everything in it.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = ::testing::TempDir() + "/kronserve-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// One etcd for all tests; each has a prefix of its own.
std::unique_ptr<StateStore> CreateEtcdStateStore(const TempFolder& folder) {
  static testing::EtcdProcess process;
  const auto election = etcd::CreateElection(
      {process.endpoint(), folder.File("prefix/")}, &SteadyClock());
  EXPECT_THAT(election->Campaign("a:1"), IsOk());
  return election->OpenStore();
}

struct Backend {
  std::string name;
  std::function<std::unique_ptr<StateStore>(const TempFolder&)> create;
};

class StateStoreContractTest : public ::testing::TestWithParam<Backend> {
 protected:
  TempFolder folder_;
  std::unique_ptr<StateStore> store_ = GetParam().create(folder_);
};

TEST_P(StateStoreContractTest, StartsEmpty) {
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const StateMap state, store_->Load());
  EXPECT_THAT(state, IsEmpty());
}

TEST_P(StateStoreContractTest, KeepsReplacesAndErases) {
  ASSERT_THAT(store_->Write({{"a", "1"}, {"b", "2"}}), IsOk());
  ASSERT_THAT(store_->Write({{"a", "3"}, {"b", std::nullopt}, {"c", "4"}}),
              IsOk());
  ASSERT_THAT(store_->Write({{"never there", std::nullopt}}), IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const StateMap state, store_->Load());
  EXPECT_THAT(state, ElementsAre(Pair("a", "3"), Pair("c", "4")));
}

TEST_P(StateStoreContractTest, LaterWritesOfABatchWin) {
  ASSERT_THAT(store_->Write({{"a", "1"}, {"a", std::nullopt}, {"a", "2"}}),
              IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const StateMap state, store_->Load());
  EXPECT_THAT(state, ElementsAre(Pair("a", "2")));
}

TEST_P(StateStoreContractTest, HoldsAnyBytes) {
  const std::string bytes("\0\xff\n'\"\0", 6);
  ASSERT_THAT(store_->Write({{"binary", bytes}, {"empty", ""}}), IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const StateMap state, store_->Load());
  EXPECT_THAT(state, ElementsAre(Pair("binary", bytes), Pair("empty", "")));
}

TEST_P(StateStoreContractTest, TheTermGrows) {
  const uint64_t first = std::max<uint64_t>(store_->leadership(), 1);
  EXPECT_EQ(*RaiseTerm(store_.get()), first);
  EXPECT_EQ(*RaiseTerm(store_.get()), first + 1);
}

TEST_P(StateStoreContractTest, ATermThatWasRaisedAboveItsLeadershipIsKept) {
  ASSERT_THAT(store_->Write({{kTermKey, "1000000"}}), IsOk());
  EXPECT_EQ(*RaiseTerm(store_.get()), 1000001u);
}

TEST_P(StateStoreContractTest, ADamagedTermIsSaid) {
  ASSERT_THAT(store_->Write({{kTermKey, "many"}}), IsOk());
  EXPECT_THAT(RaiseTerm(store_.get()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("'many'")));
}

INSTANTIATE_TEST_SUITE_P(
    Backends, StateStoreContractTest,
    ::testing::Values(
        Backend{"Memory",
                [](const TempFolder&) { return memory::CreateStateStore(); }},
        Backend{"Sqlite",
                [](const TempFolder& folder) {
                  return *sqlite::CreateStateStore(folder.File("state.db"));
                }},
        Backend{"Etcd", &CreateEtcdStateStore}),
    [](const auto& info) { return info.param.name; });

TEST(SqliteStateStoreTest, SurvivesAReopen) {
  const TempFolder folder;
  const std::string path = folder.File("state.db");
  {
    KRONSERVE_ASSERT_OK_AND_ASSIGN(auto store, sqlite::CreateStateStore(path));
    EXPECT_EQ(store->Describe(), "sqlite:" + path);
    EXPECT_EQ(*RaiseTerm(store.get()), 1u);
    ASSERT_THAT(store->Write({{"job/a", "config"}}), IsOk());
    EXPECT_TRUE(std::filesystem::exists(path + "-wal"));
  }
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto store, sqlite::CreateStateStore(path));
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const StateMap state, store->Load());
  EXPECT_THAT(state, ElementsAre(Pair("job/a", "config"), Pair("term", "1")));
  EXPECT_EQ(*RaiseTerm(store.get()), 2u);
}

TEST(SqliteStateStoreTest, ASecondOpenerIsRefused) {
  const TempFolder folder;
  const std::string path = folder.File("state.db");
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto store, sqlite::CreateStateStore(path));
  EXPECT_THAT(sqlite::CreateStateStore(path),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(path),
                             HasSubstr("in use by another scheduler"))));
  store.reset();
  EXPECT_THAT(sqlite::CreateStateStore(path), IsOk());
}

TEST(SqliteStateStoreTest, AMissingFolderIsNamed) {
  EXPECT_THAT(sqlite::CreateStateStore("/no/such/folder/state.db"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("/no/such/folder/state.db")));
}

TEST(SqliteStateStoreTest, AFileThatIsNoDatabaseIsDataLoss) {
  const TempFolder folder;
  const std::string path = folder.File("state.db");
  std::ofstream(path) << std::string(4096, 'x');
  EXPECT_THAT(sqlite::CreateStateStore(path),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path)));
}

void RunSql(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(db);
}

TEST(SqliteStateStoreTest, AFileOfANewerVersionIsRefused) {
  const TempFolder folder;
  const std::string path = folder.File("state.db");
  RunSql(path, "PRAGMA user_version = 2");
  EXPECT_THAT(sqlite::CreateStateStore(path),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("format 2"), HasSubstr("up to 1"))));
}

TEST(SqliteStateStoreTest, AFailedBatchChangesNothing) {
  const TempFolder folder;
  const std::string path = folder.File("state.db");
  { ASSERT_THAT(sqlite::CreateStateStore(path), IsOk()); }
  // The table refuses one key, as a full disk would refuse any.
  RunSql(path,
         "CREATE TRIGGER full BEFORE INSERT ON state WHEN NEW.key = 'bad' "
         "BEGIN SELECT RAISE(ABORT, 'disk is full'); END");
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto store, sqlite::CreateStateStore(path));
  EXPECT_THAT(
      store->Write({{"good", "1"}, {"bad", "2"}}),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("disk is full")));
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const StateMap state, store->Load());
  EXPECT_THAT(state, IsEmpty());
  EXPECT_THAT(store->Write({{"good", "1"}}), IsOk());
}

}  // namespace
}  // namespace kronserve::scheduler
