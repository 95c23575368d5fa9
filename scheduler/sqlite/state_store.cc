#include "scheduler/state_store.h"

#include <sqlite3.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "scheduler/sqlite/factory.h"

namespace kronserve::scheduler::sqlite {
namespace {

// Version of the table below, in PRAGMA user_version.
constexpr int kSchemaVersion = 1;

// What a result code of SQLite asks of the operator.
absl::Status ToStatus(int code, const std::string& path, sqlite3* db) {
  const std::string detail =
      db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(code);
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::FailedPreconditionError(
          absl::StrCat("state file '", path,
                       "' is in use by another scheduler: stop that one, or "
                       "give this one another file in --store"));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(
          absl::StrCat("state file '", path, "' cannot be read: ", detail));
    default:
      return absl::UnavailableError(
          absl::StrCat("state file '", path, "': ", detail));
  }
}

// A prepared statement, finalized at the end of its scope.
class Statement {
 public:
  Statement(sqlite3* db, const char* sql) {
    code_ = sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  void BindText(int index, const std::string& value) {
    if (code_ != SQLITE_OK) return;
    code_ = sqlite3_bind_text64(statement_, index, value.data(), value.size(),
                                SQLITE_TRANSIENT, SQLITE_UTF8);
  }
  void BindBlob(int index, const std::string& value) {
    if (code_ != SQLITE_OK) return;
    // A null pointer would bind NULL, not an empty blob.
    code_ = sqlite3_bind_blob64(statement_, index,
                                value.empty() ? "" : value.data(), value.size(),
                                SQLITE_TRANSIENT);
  }
  // SQLITE_ROW, SQLITE_DONE or an error.
  int Step() { return code_ != SQLITE_OK ? code_ : sqlite3_step(statement_); }

  std::string Column(int index) {
    const void* data = sqlite3_column_blob(statement_, index);
    const int bytes = sqlite3_column_bytes(statement_, index);
    return data == nullptr ? ""
                           : std::string(static_cast<const char*>(data), bytes);
  }
  int IntColumn(int index) { return sqlite3_column_int(statement_, index); }

 private:
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK;
};

class SqliteStateStore final : public StateStore {
 public:
  explicit SqliteStateStore(std::string path) : path_(std::move(path)) {}
  ~SqliteStateStore() override { sqlite3_close(db_); }

  absl::Status Open() {
    const int code = sqlite3_open_v2(
        path_.c_str(), &db_,
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX,
        nullptr);
    if (code != SQLITE_OK) {
      return absl::FailedPreconditionError(absl::StrCat(
          "state file '", path_, "' cannot be opened: ", sqlite3_errmsg(db_),
          "; does its folder exist, and may we write there?"));
    }
    KRONSERVE_RETURN_IF_ERROR(Run("PRAGMA locking_mode = EXCLUSIVE"));
    KRONSERVE_RETURN_IF_ERROR(Run("PRAGMA journal_mode = WAL"));
    KRONSERVE_RETURN_IF_ERROR(Run("PRAGMA synchronous = FULL"));
    // SQLite keeps the old mode, without an error, where it cannot change it.
    KRONSERVE_RETURN_IF_ERROR(Require("journal_mode", "wal"));
    KRONSERVE_RETURN_IF_ERROR(Require("synchronous", "2"));  // FULL
    // The write takes the lock that exclusive mode then keeps.
    KRONSERVE_RETURN_IF_ERROR(Run("BEGIN IMMEDIATE"));
    KRONSERVE_RETURN_IF_ERROR(CheckVersion());
    KRONSERVE_RETURN_IF_ERROR(
        Run("CREATE TABLE IF NOT EXISTS state (key TEXT PRIMARY KEY, value "
            "BLOB NOT NULL) WITHOUT ROWID"));
    KRONSERVE_RETURN_IF_ERROR(
        Run(absl::StrCat("PRAGMA user_version = ", kSchemaVersion)));
    return Run("COMMIT");
  }

  std::string Describe() const override {
    return absl::StrCat("sqlite:", path_);
  }

  absl::StatusOr<StateMap> Load() override {
    StateMap state;
    Statement select(db_, "SELECT key, value FROM state");
    int code = select.Step();
    for (; code == SQLITE_ROW; code = select.Step()) {
      state[select.Column(0)] = select.Column(1);
    }
    if (code != SQLITE_DONE) {
      return absl::DataLossError(absl::StrCat(
          "state file '", path_, "' cannot be read: ", sqlite3_errmsg(db_)));
    }
    return state;
  }

  absl::Status Write(const WriteBatch& batch) override {
    KRONSERVE_RETURN_IF_ERROR(Run("BEGIN IMMEDIATE"));
    absl::Status status;
    for (const StateWrite& write : batch) {
      status = WriteOne(write);
      if (!status.ok()) break;
    }
    if (status.ok()) status = Run("COMMIT");
    // After a failed COMMIT the transaction may still be open.
    if (!status.ok() && sqlite3_get_autocommit(db_) == 0) {
      Run("ROLLBACK").IgnoreError();
    }
    return status;
  }

 private:
  absl::Status WriteOne(const StateWrite& write) {
    Statement statement(
        db_, write.value.has_value()
                 ? "INSERT INTO state (key, value) VALUES (?1, ?2) ON CONFLICT "
                   "(key) DO UPDATE SET value = excluded.value"
                 : "DELETE FROM state WHERE key = ?1");
    statement.BindText(1, write.key);
    if (write.value.has_value()) statement.BindBlob(2, *write.value);
    const int code = statement.Step();
    return code == SQLITE_DONE ? absl::OkStatus() : ToStatus(code, path_, db_);
  }

  absl::Status Require(const std::string& pragma, const std::string& value) {
    Statement statement(db_, absl::StrCat("PRAGMA ", pragma).c_str());
    const int code = statement.Step();
    if (code != SQLITE_ROW) return ToStatus(code, path_, db_);
    const std::string found = statement.Column(0);
    if (found == value) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "state file '", path_, "': ", pragma, " is ", found, ", not ", value,
        ": its file system would not keep what was written; use another"));
  }

  absl::Status CheckVersion() {
    Statement statement(db_, "PRAGMA user_version");
    const int code = statement.Step();
    if (code != SQLITE_ROW) return ToStatus(code, path_, db_);
    const int version = statement.IntColumn(0);
    if (version <= kSchemaVersion) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("state file '", path_, "' has format ", version,
                     ", this scheduler reads up to ", kSchemaVersion,
                     ": it was written by a newer version; use that one"));
  }

  absl::Status Run(const std::string& sql) {
    const int code = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr);
    return code == SQLITE_OK ? absl::OkStatus() : ToStatus(code, path_, db_);
  }

  const std::string path_;
  sqlite3* db_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StateStore>> CreateStateStore(
    const std::string& path) {
  auto store = std::make_unique<SqliteStateStore>(path);
  KRONSERVE_RETURN_IF_ERROR(store->Open());
  return store;
}

}  // namespace kronserve::scheduler::sqlite
