#include "scheduler/etcd/state_store.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace kronserve::scheduler::etcd {
namespace {

namespace pb = etcdserverpb;

// Keeps an answer below the 64 MiB that a channel takes (grpc_channel.h): a
// value has up to 1.5 MiB.
constexpr int64_t kKeysPerPage = 32;

std::string WritesKey(const EtcdOptions& options) {
  return absl::StrCat(options.prefix, "writes");
}

std::string StatePrefix(const EtcdOptions& options) {
  return absl::StrCat(options.prefix, "state/");
}

void Put(const std::string& key, const std::string& value,
         pb::TxnRequest* txn) {
  pb::PutRequest* put = txn->add_success()->mutable_request_put();
  put->set_key(key);
  put->set_value(value);
}

}  // namespace

std::string LeaderKey(const EtcdOptions& options) {
  return absl::StrCat(options.prefix, "leader");
}

EtcdStateStore::EtcdStateStore(const EtcdOptions& options, int64_t leadership)
    : options_(options), leadership_(leadership), client_(options.endpoints) {}

std::string EtcdStateStore::Describe() const {
  return absl::StrCat("etcd:", options_.endpoints);
}

uint64_t EtcdStateStore::leadership() const {
  return static_cast<uint64_t>(leadership_);
}

absl::StatusOr<StateMap> EtcdStateStore::Load() {
  const std::string prefix = StatePrefix(options_);
  pb::RangeRequest request;
  request.set_key(prefix);
  // The first key after all that begin with the prefix.
  std::string end = prefix;
  ++end.back();
  request.set_range_end(end);
  request.set_limit(kKeysPerPage);
  StateMap state;
  while (true) {
    KRONSERVE_ASSIGN_OR_RETURN(const pb::RangeResponse page,
                               client_.Range(request));
    for (const pb::KeyValue& pair : page.kvs()) {
      state[pair.key().substr(prefix.size())] = pair.value();
    }
    if (!page.more() || page.kvs().empty()) return state;
    // All pages as of one moment.
    if (request.revision() == 0) request.set_revision(page.header().revision());
    request.set_key(
        absl::StrCat(page.kvs().rbegin()->key(), absl::string_view("\0", 1)));
  }
}

absl::Status EtcdStateStore::Write(const WriteBatch& batch) {
  // At most one more batch of ours can have been under way.
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (!newest_write_.has_value()) {
      KRONSERVE_ASSIGN_OR_RETURN(newest_write_, NewestWrite());
    }
    KRONSERVE_ASSIGN_OR_RETURN(const bool done, TryWrite(batch));
    if (done) return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat(Describe(), ": other writes come in between"));
}

absl::StatusOr<int64_t> EtcdStateStore::NewestWrite() {
  KRONSERVE_ASSIGN_OR_RETURN(const pb::RangeResponse found,
                             client_.Range(RangeOfKey(WritesKey(options_))));
  return found.kvs().empty() ? 0 : found.kvs(0).mod_revision();
}

absl::StatusOr<bool> EtcdStateStore::TryWrite(const WriteBatch& batch) {
  pb::TxnRequest txn;
  *txn.add_compare() = CreatedIn(LeaderKey(options_), leadership_);
  pb::Compare* newest = txn.add_compare();
  newest->set_target(pb::Compare::MOD);
  newest->set_key(WritesKey(options_));
  newest->set_mod_revision(*newest_write_);
  Put(WritesKey(options_), absl::StrCat(leadership_), &txn);
  // etcd takes each key once: the last write of a key wins.
  std::map<std::string, std::optional<std::string>> last;
  for (const StateWrite& write : batch) last[write.key] = write.value;
  for (const auto& [name, value] : last) {
    const std::string key = absl::StrCat(StatePrefix(options_), name);
    if (value.has_value()) {
      Put(key, *value, &txn);
    } else {
      txn.add_success()->mutable_request_delete_range()->set_key(key);
    }
  }
  *txn.add_failure()->mutable_request_range() = RangeOfKey(LeaderKey(options_));
  const absl::StatusOr<pb::TxnResponse> answer = client_.Txn(txn);
  newest_write_.reset();
  if (!answer.ok()) return answer.status();
  if (answer->succeeded()) {
    newest_write_ = answer->header().revision();
    return true;
  }
  const auto& leader = answer->responses(0).response_range().kvs();
  if (leader.empty() || leader[0].create_revision() != leadership_) {
    return absl::AbortedError(absl::StrCat(
        Describe(), ": this scheduler does not lead any more, ",
        leader.empty() ? "nobody does" : leader[0].value() + " does"));
  }
  return false;
}

}  // namespace kronserve::scheduler::etcd
