// Leadership is a key that hangs on a lease: who creates it leads, and its
// create-revision tells one leadership from the next.

#include "scheduler/election.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "scheduler/etcd/etcd_client.h"
#include "scheduler/etcd/factory.h"
#include "scheduler/etcd/state_store.h"

namespace kronserve::scheduler::etcd {
namespace {

namespace pb = etcdserverpb;

// Of a lease: how long we count on it. The rest is for clocks that do not run
// alike.
constexpr double kTrusted = 0.9;

class EtcdElection final : public Election {
 public:
  EtcdElection(EtcdOptions options, const Clock* clock)
      : options_(std::move(options)),
        clock_(*clock),
        client_(options_.endpoints) {}

  std::string Describe() const override {
    return absl::StrCat("etcd:", options_.endpoints);
  }

  absl::StatusOr<Result> Campaign(const std::string& address) override {
    const absl::Time sent = clock_.Now();
    if (lease_.id != 0) {
      KRONSERVE_ASSIGN_OR_RETURN(lease_, client_.KeepAlive(lease_.id));
      if (lease_.ttl_seconds == 0) lease_.id = 0;
    }
    KRONSERVE_ASSIGN_OR_RETURN(const pb::RangeResponse found,
                               client_.Range(RangeOfKey(LeaderKey(options_))));
    if (!found.kvs().empty()) return ResultOf(found.kvs(0), sent);
    if (lease_.id == 0) {
      KRONSERVE_ASSIGN_OR_RETURN(
          lease_, client_.GrantLease(absl::ToInt64Seconds(
                      absl::Ceil(options_.lease, absl::Seconds(1)))));
    }
    return CreateKey(address, sent);
  }

  std::unique_ptr<StateStore> OpenStore() override {
    return std::make_unique<EtcdStateStore>(options_, leadership_);
  }

  void Resign() override {
    if (lease_.id == 0) return;
    // If it does not arrive, the lease ends by itself.
    client_.Revoke(std::exchange(lease_, {}).id).IgnoreError();
  }

 private:
  absl::StatusOr<Result> CreateKey(const std::string& address,
                                   absl::Time sent) {
    const std::string key = LeaderKey(options_);
    pb::TxnRequest txn;
    *txn.add_compare() = CreatedIn(key, 0);
    pb::PutRequest* put = txn.add_success()->mutable_request_put();
    put->set_key(key);
    put->set_value(address);
    put->set_lease(lease_.id);
    *txn.add_failure()->mutable_request_range() = RangeOfKey(key);
    KRONSERVE_ASSIGN_OR_RETURN(const pb::TxnResponse answer, client_.Txn(txn));
    pb::KeyValue leader;
    if (answer.succeeded()) {
      leader.set_value(address);
      leader.set_lease(lease_.id);
      leader.set_create_revision(answer.header().revision());
    } else if (!answer.responses(0).response_range().kvs().empty()) {
      leader = answer.responses(0).response_range().kvs(0);
    }
    return ResultOf(leader, sent);
  }

  // The key may also be ours when the answer to its creation was lost.
  Result ResultOf(const pb::KeyValue& leader, absl::Time sent) {
    Result result;
    result.leader = leader.value();
    if (lease_.id == 0 || leader.lease() != lease_.id) return result;
    result.leads_until = sent + absl::Seconds(lease_.ttl_seconds) * kTrusted;
    result.leadership = leadership_ = leader.create_revision();
    return result;
  }

  const EtcdOptions options_;
  const Clock& clock_;
  EtcdClient client_;
  EtcdClient::Lease lease_;
  int64_t leadership_ = 0;
};

}  // namespace

std::unique_ptr<Election> CreateElection(const EtcdOptions& options,
                                         const Clock* clock) {
  return std::make_unique<EtcdElection>(options, clock);
}

}  // namespace kronserve::scheduler::etcd
