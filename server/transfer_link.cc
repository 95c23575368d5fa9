#include "server/transfer_link.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/grpc_channel.h"
#include "common/grpc_status.h"
#include "common/mutex.h"
#include "kronserve/v1/preconditioner.grpc.pb.h"

namespace kronserve::server {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(5);
constexpr double kBytesPerSecond = 20e6;

absl::Duration TimeoutOf(const std::vector<Tensor>& tensors) {
  double bytes = 0;
  for (const Tensor& tensor : tensors) {
    bytes += static_cast<double>(tensor->size() * sizeof(float));
  }
  return kTimeout + absl::Seconds(bytes / kBytesPerSecond);
}

// One call; deletes itself when it has called `ended`.
class SendReactor final
    : public grpc::ClientWriteReactor<v1::TransferLayerRequest> {
 public:
  using Ended = std::function<void(SendReactor*, const absl::Status&)>;

  SendReactor(Shipment shipment, Ended ended)
      : name_(absl::StrCat("server '", shipment.target.name(), "' at ",
                           shipment.target.address())),
        address_(shipment.target.address()),
        tensors_(std::move(shipment.tensors)),
        ended_(std::move(ended)) {
    context_.set_deadline(
        absl::ToChronoTime(absl::Now() + TimeoutOf(tensors_)));
    *request_.mutable_header() = std::move(shipment.header);
  }

  void Start(v1::LayerTransfer::Stub* stub) {
    stub->async()->TransferLayer(&context_, &response_, this);
    StartWrite(&request_);
    StartCall();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return;  // The call has ended; OnDone() follows.
    if (NextChunk()) {
      StartWrite(&request_);
    } else {
      StartWritesDone();
    }
  }

  void OnDone(const grpc::Status& status) override {
    ended_(this, FromGrpcStatus(status, name_));
  }

  void Cancel() { context_.TryCancel(); }
  const std::string& address() const { return address_; }

 private:
  bool NextChunk() {
    for (; item_ < tensors_.size(); ++item_, splitter_.reset()) {
      if (!splitter_.has_value()) {
        splitter_.emplace(static_cast<int>(item_), tensors_[item_]->data(),
                          static_cast<int64_t>(tensors_[item_]->size()));
      }
      if (splitter_->Next(request_.mutable_chunk())) return true;
    }
    return false;
  }

  const std::string name_;
  const std::string address_;
  const std::vector<Tensor> tensors_;
  const Ended ended_;
  grpc::ClientContext context_;
  v1::TransferLayerRequest request_;
  v1::TransferLayerResponse response_;
  size_t item_ = 0;
  std::optional<ChunkSplitter> splitter_;
};

// A connection stays while a call runs on it: its channel must not die in the
// callback of its own last call (grpc#37858).
struct Peer {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::LayerTransfer::Stub> stub;
  int in_flight = 0;
};

class GrpcTransferLink final : public TransferLink {
 public:
  ~GrpcTransferLink() override { Stop(); }

  void Send(Shipment shipment, Done done) override {
    CloseIdle();
    const std::string address = shipment.target.address();
    auto* reactor = new SendReactor(
        std::move(shipment),
        [this, done](SendReactor* call, const absl::Status& status) {
          done(status);
          End(call);
        });
    v1::LayerTransfer::Stub* stub = Admit(address, reactor);
    if (stub == nullptr) {
      delete reactor;
      done(absl::CancelledError("the server is shutting down"));
      return;
    }
    reactor->Start(stub);
  }

  void Stop() override {
    MutexLock lock(&mu_);
    stopping_ = true;
    for (SendReactor* call : calls_) call->Cancel();
    // Cancelled calls end at once, and every call has a deadline.
    while (in_flight_ > 0) ended_.WaitFor(&mu_, absl::Seconds(1));
  }

 private:
  // Null when stopping. The stub stays until End().
  v1::LayerTransfer::Stub* Admit(const std::string& address, SendReactor* call)
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (stopping_) return nullptr;
    Peer& peer = peers_[address];
    if (peer.stub == nullptr) {
      peer.channel = CreateChannel(address);
      peer.stub = v1::LayerTransfer::NewStub(peer.channel);
    }
    ++peer.in_flight;
    ++in_flight_;
    calls_.insert(call);
    return peer.stub.get();
  }

  void End(SendReactor* call) ABSL_LOCKS_EXCLUDED(mu_) {
    const std::string address = call->address();
    {
      MutexLock lock(&mu_);
      calls_.erase(call);
    }
    delete call;  // With its reference to the channel, which we still hold.
    // Last: when none is in flight, Stop() returns and `this` may go.
    MutexLock lock(&mu_);
    --peers_[address].in_flight;
    --in_flight_;
    ended_.NotifyAll();
  }

  // Moves are rare: a connection is kept for the moves that come together.
  void CloseIdle() ABSL_LOCKS_EXCLUDED(mu_) {
    // Channels die outside the lock: their destructor may wait.
    std::vector<Peer> idle;
    MutexLock lock(&mu_);
    if (peers_.size() < kMostPeers) return;
    for (auto it = peers_.begin(); it != peers_.end();) {
      if (it->second.in_flight > 0) {
        ++it;
        continue;
      }
      idle.push_back(std::move(it->second));
      it = peers_.erase(it);
    }
  }

  static constexpr size_t kMostPeers = 64;

  Mutex mu_;
  CondVar ended_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::map<std::string, Peer> peers_ ABSL_GUARDED_BY(mu_);
  // To cancel; a call leaves here before it is deleted.
  std::set<SendReactor*> calls_ ABSL_GUARDED_BY(mu_);
  int in_flight_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace

std::unique_ptr<TransferLink> CreateGrpcTransferLink() {
  return std::make_unique<GrpcTransferLink>();
}

}  // namespace kronserve::server
