#include "scheduler/etcd/etcd_client.h"

#include <grpcpp/client_context.h>

#include <chrono>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/grpc_channel.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"

namespace kronserve::scheduler::etcd {
namespace {

namespace pb = etcdserverpb;

constexpr std::chrono::seconds kCallTimeout(2);

}  // namespace

struct EtcdClient::Member {
  explicit Member(const std::string& member_address)
      : address(member_address),
        channel(CreateChannel(address)),
        kv(pb::KV::NewStub(channel)),
        lease(pb::Lease::NewStub(channel)) {}

  const std::string address;
  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<pb::KV::Stub> kv;
  const std::unique_ptr<pb::Lease::Stub> lease;
};

EtcdClient::EtcdClient(const std::string& endpoints) {
  for (absl::string_view address : absl::StrSplit(endpoints, ',')) {
    members_.push_back(std::make_unique<Member>(
        std::string(absl::StripAsciiWhitespace(address))));
  }
}

EtcdClient::~EtcdClient() = default;

template <typename Call>
absl::Status EtcdClient::Ask(const Call& call) {
  using Clock = std::chrono::system_clock;
  const Clock::time_point end = Clock::now() + kCallTimeout;
  absl::Status status;
  for (size_t left = members_.size(); left > 0; --left) {
    Member& member = *members_[current_];
    grpc::ClientContext context;
    const Clock::time_point now = Clock::now();
    context.set_deadline(now + (end - now) / static_cast<int64_t>(left));
    // There is nobody else to ask: let it come up.
    context.set_wait_for_ready(left == 1);
    status = FromGrpcStatus(call(member, &context),
                            absl::StrCat("etcd at ", member.address));
    const bool reached =
        !absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status);
    if (reached) return status;
    current_ = (current_ + 1) % members_.size();
  }
  return absl::UnavailableError(absl::StrCat(
      "no member of etcd answers, last asked: ", status.message()));
}

absl::StatusOr<pb::RangeResponse> EtcdClient::Range(
    const pb::RangeRequest& request) {
  pb::RangeResponse response;
  KRONSERVE_RETURN_IF_ERROR(
      Ask([&](Member& member, grpc::ClientContext* context) {
        return member.kv->Range(context, request, &response);
      }));
  return response;
}

absl::StatusOr<pb::TxnResponse> EtcdClient::Txn(const pb::TxnRequest& request) {
  pb::TxnResponse response;
  KRONSERVE_RETURN_IF_ERROR(
      Ask([&](Member& member, grpc::ClientContext* context) {
        return member.kv->Txn(context, request, &response);
      }));
  return response;
}

absl::StatusOr<EtcdClient::Lease> EtcdClient::GrantLease(int64_t ttl_seconds) {
  pb::LeaseGrantRequest request;
  request.set_ttl(ttl_seconds);
  pb::LeaseGrantResponse response;
  KRONSERVE_RETURN_IF_ERROR(
      Ask([&](Member& member, grpc::ClientContext* context) {
        return member.lease->LeaseGrant(context, request, &response);
      }));
  if (!response.error().empty()) {
    return absl::InternalError(
        absl::StrCat("etcd grants no lease: ", response.error()));
  }
  return Lease{response.id(), response.ttl()};
}

absl::StatusOr<EtcdClient::Lease> EtcdClient::KeepAlive(int64_t id) {
  pb::LeaseKeepAliveRequest request;
  request.set_id(id);
  pb::LeaseKeepAliveResponse response;
  KRONSERVE_RETURN_IF_ERROR(
      Ask([&](Member& member, grpc::ClientContext* context) {
        // A stream by etcd's API; one exchange is all we want of it.
        auto stream = member.lease->LeaseKeepAlive(context);
        const bool answered = stream->Write(request) && stream->WritesDone() &&
                              stream->Read(&response);
        grpc::Status status = stream->Finish();
        if (answered || !status.ok()) return status;
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "no answer");
      }));
  return Lease{response.id(), response.ttl()};
}

absl::Status EtcdClient::Revoke(int64_t id) {
  pb::LeaseRevokeRequest request;
  request.set_id(id);
  return Ask([&](Member& member, grpc::ClientContext* context) {
    pb::LeaseRevokeResponse response;
    return member.lease->LeaseRevoke(context, request, &response);
  });
}

pb::RangeRequest RangeOfKey(const std::string& key) {
  pb::RangeRequest request;
  request.set_key(key);
  return request;
}

pb::Compare CreatedIn(const std::string& key, int64_t revision) {
  pb::Compare compare;
  compare.set_result(pb::Compare::EQUAL);
  compare.set_target(pb::Compare::CREATE);
  compare.set_key(key);
  compare.set_create_revision(revision);
  return compare;
}

}  // namespace kronserve::scheduler::etcd
