// Blocking calls to an etcd cluster.
//
// Layer: scheduler. May include common/, proto/ and placement/.

#ifndef KRONSERVE_SCHEDULER_ETCD_ETCD_CLIENT_H_
#define KRONSERVE_SCHEDULER_ETCD_ETCD_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "etcd/rpc.grpc.pb.h"

namespace kronserve::scheduler::etcd {

// Asks the member that answered last; when it cannot be reached, the others.
// All together take at most two seconds, each a like share of what is left:
// one that is cut off must not cost a leader its lease. The last one may also
// come up in its share.
//
// Thread safety: none; one thread uses it at a time.
//
// Errors of every call:
//   kUnavailable  no member answered, or they have no quorum. A write may have
//                 been done, or may still be.
//   others        etcd refused; the message is its own.
class EtcdClient {
 public:
  //   endpoints  host:port, comma-separated; at least one.
  explicit EtcdClient(const std::string& endpoints);
  ~EtcdClient();

  absl::StatusOr<etcdserverpb::RangeResponse> Range(
      const etcdserverpb::RangeRequest& request);
  absl::StatusOr<etcdserverpb::TxnResponse> Txn(
      const etcdserverpb::TxnRequest& request);

  struct Lease {
    int64_t id = 0;
    // 0: it has expired.
    int64_t ttl_seconds = 0;
  };
  absl::StatusOr<Lease> GrantLease(int64_t ttl_seconds);
  absl::StatusOr<Lease> KeepAlive(int64_t id);
  absl::Status Revoke(int64_t id);

 private:
  struct Member;

  template <typename Call>
  absl::Status Ask(const Call& call);

  std::vector<std::unique_ptr<Member>> members_;
  size_t current_ = 0;
};

// The one key-value pair of `key`, or none.
etcdserverpb::RangeRequest RangeOfKey(const std::string& key);

// `key` was created in `revision`; 0: it is not there.
etcdserverpb::Compare CreatedIn(const std::string& key, int64_t revision);

}  // namespace kronserve::scheduler::etcd

#endif  // KRONSERVE_SCHEDULER_ETCD_ETCD_CLIENT_H_
