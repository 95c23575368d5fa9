#include "client/grpc_transport.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/answer_reader.h"
#include "common/grpc_channel.h"
#include "common/grpc_status.h"
#include "common/mutex.h"
#include "kronserve/v1/preconditioner.grpc.pb.h"
#include "proto/tensor_chunks.h"

namespace kronserve::client {
namespace {

// A call on its way, as the transport sees it.
class ActiveCall {
 public:
  virtual ~ActiveCall() = default;
  void Cancel() { context_.TryCancel(); }

 protected:
  explicit ActiveCall(const Target& target)
      : name_(
            absl::StrCat("server '", target.server, "' at ", target.address)) {
    context_.set_deadline(absl::ToChronoTime(absl::Now() + target.timeout));
  }

  // The end of the call as seen by its caller; `own` is what this side found
  // wrong, if anything.
  CallEnd End(const grpc::Status& status, const absl::Status& own) const {
    CallEnd end{own.ok() ? FromGrpcStatus(status, name_) : own, std::nullopt};
    if (end.status.code() != absl::StatusCode::kAborted) return end;
    v1::Assignment newer;
    if (Attached(kAssignmentMetadata, &newer)) end.newer = std::move(newer);
    v1::LayersElsewhere elsewhere;
    if (Attached(kElsewhereMetadata, &elsewhere)) {
      end.elsewhere.assign(elsewhere.layers().begin(),
                           elsewhere.layers().end());
    }
    return end;
  }

  template <typename Message>
  bool Attached(const char* key, Message* message) const {
    const auto& metadata = context_.GetServerTrailingMetadata();
    const auto it = metadata.find(key);
    return it != metadata.end() &&
           message->ParseFromArray(it->second.data(),
                                   static_cast<int>(it->second.size()));
  }

  grpc::ClientContext context_;
  const std::string name_;
};

// The calls that have not ended. A call takes itself out when it has called
// its `done` and let go of its context: a transport whose set is empty may
// destroy its channels.
class CallSet {
 public:
  // False after Close(): the call must not start.
  bool Insert(const std::shared_ptr<ActiveCall>& call)
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (closed_) return false;
    calls_.insert(call);
    ++running_;
    return true;
  }

  void Erase(std::shared_ptr<ActiveCall> call) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      calls_.erase(call);
    }
    // Destroys the call, and its reference to the channel, before anybody can
    // find the set empty.
    call.reset();
    MutexLock lock(&mu_);
    --running_;
    changed_.NotifyAll();
  }

  void Close() ABSL_LOCKS_EXCLUDED(mu_) {
    std::set<std::shared_ptr<ActiveCall>> calls;
    {
      MutexLock lock(&mu_);
      closed_ = true;
      calls = calls_;
    }
    for (const auto& call : calls) call->Cancel();
    calls.clear();
    MutexLock lock(&mu_);
    while (running_ > 0) changed_.WaitFor(&mu_, absl::Seconds(1));
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  int running_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<std::shared_ptr<ActiveCall>> calls_ ABSL_GUARDED_BY(mu_);
};

// Yields the chunks of several tensors, in item order.
class TensorWriter {
 public:
  explicit TensorWriter(std::vector<Tensor> tensors)
      : tensors_(std::move(tensors)) {}

  bool Next(v1::TensorChunk* chunk) {
    for (; item_ < tensors_.size(); ++item_, splitter_.reset()) {
      const Tensor& tensor = tensors_[item_];
      if (tensor == nullptr) continue;
      if (!splitter_.has_value()) {
        splitter_.emplace(static_cast<int>(item_), tensor->data(),
                          static_cast<int64_t>(tensor->size()));
      }
      if (splitter_->Next(chunk)) return true;
    }
    return false;
  }

 private:
  const std::vector<Tensor> tensors_;
  size_t item_ = 0;
  std::optional<ChunkSplitter> splitter_;
};

class PushReactor final
    : public ActiveCall,
      public grpc::ClientWriteReactor<v1::PushFactorsRequest> {
 public:
  PushReactor(PushCall call, Transport::OnPushDone done, CallSet* calls)
      : ActiveCall(call.target),
        writer_(std::move(call.tensors)),
        done_(std::move(done)),
        calls_(calls) {
    *request_.mutable_header() = std::move(call.header);
  }

  void Start(v1::Preconditioner::Stub* stub,
             std::shared_ptr<PushReactor> self) {
    self_ = std::move(self);
    stub->async()->PushFactors(&context_, &response_, this);
    StartWrite(&request_);
    StartCall();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return;  // The call has ended; OnDone() follows.
    if (writer_.Next(request_.mutable_chunk())) {
      StartWrite(&request_);
    } else {
      StartWritesDone();
    }
  }

  void OnDone(const grpc::Status& status) override {
    done_(End(status, absl::OkStatus()), response_);
    calls_->Erase(std::move(self_));  // Destroys this.
  }

 private:
  TensorWriter writer_;
  v1::PushFactorsRequest request_;
  v1::PushFactorsResponse response_;
  Transport::OnPushDone done_;
  CallSet* const calls_;
  std::shared_ptr<PushReactor> self_;
};

class PreconditionReactor final
    : public ActiveCall,
      public grpc::ClientBidiReactor<v1::PreconditionRequest,
                                     v1::PreconditionResponse> {
 public:
  PreconditionReactor(PreconditionCall call, Transport::OnLayer on_layer,
                      Transport::OnDone done, CallSet* calls)
      : ActiveCall(call.target),
        reader_({call.header.items().begin(), call.header.items().end()}),
        writer_(std::move(call.tensors)),
        on_layer_(std::move(on_layer)),
        done_(std::move(done)),
        calls_(calls) {
    *request_.mutable_header() = std::move(call.header);
  }

  void Start(v1::Preconditioner::Stub* stub,
             std::shared_ptr<PreconditionReactor> self) {
    self_ = std::move(self);
    stub->async()->Precondition(&context_, this);
    StartWrite(&request_);
    StartRead(&response_);
    StartCall();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return;
    if (writer_.Next(request_.mutable_chunk())) {
      StartWrite(&request_);
    } else {
      StartWritesDone();
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;  // No more answers; OnDone() follows.
    auto answer = reader_.Add(&response_);
    if (!answer.ok()) {
      broken_ = Named(answer.status());
      context_.TryCancel();
      return;
    }
    if (answer->has_value()) on_layer_(**std::move(answer));
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    if (broken_.ok() && status.ok()) broken_ = Named(reader_.Finish());
    done_(End(status, broken_));
    calls_->Erase(std::move(self_));  // Destroys this.
  }

 private:
  absl::Status Named(const absl::Status& status) const {
    if (status.ok()) return status;
    return absl::Status(
        status.code(),
        absl::StrCat(name_, ": ", std::string(status.message())));
  }

  AnswerReader reader_;
  TensorWriter writer_;
  v1::PreconditionRequest request_;
  v1::PreconditionResponse response_;
  absl::Status broken_;
  Transport::OnLayer on_layer_;
  Transport::OnDone done_;
  CallSet* const calls_;
  std::shared_ptr<PreconditionReactor> self_;
};

class GrpcTransport final : public Transport {
 public:
  ~GrpcTransport() override { calls_.Close(); }

  void PushFactors(PushCall call, OnPushDone done) override {
    v1::Preconditioner::Stub* stub = StubFor(call.target.address);
    auto reactor =
        std::make_shared<PushReactor>(std::move(call), done, &calls_);
    if (!calls_.Insert(reactor)) return done(Closed(), {});
    reactor->Start(stub, reactor);
  }

  void Precondition(PreconditionCall call, OnLayer on_layer,
                    OnDone done) override {
    v1::Preconditioner::Stub* stub = StubFor(call.target.address);
    auto reactor = std::make_shared<PreconditionReactor>(
        std::move(call), std::move(on_layer), done, &calls_);
    if (!calls_.Insert(reactor)) return done(Closed());
    reactor->Start(stub, reactor);
  }

  void Shutdown() override { calls_.Close(); }

 private:
  static CallEnd Closed() {
    return {absl::CancelledError("the transport was shut down"), std::nullopt};
  }

  v1::Preconditioner::Stub* StubFor(const std::string& address)
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    std::unique_ptr<v1::Preconditioner::Stub>& stub = stubs_[address];
    if (stub == nullptr) {
      stub = v1::Preconditioner::NewStub(CreateChannel(address));
    }
    return stub.get();
  }

  // Destroyed after calls_ has drained in the destructor.
  Mutex mu_;
  std::map<std::string, std::unique_ptr<v1::Preconditioner::Stub>> stubs_
      ABSL_GUARDED_BY(mu_);
  CallSet calls_;
};

}  // namespace

std::unique_ptr<Transport> CreateGrpcTransport() {
  return std::make_unique<GrpcTransport>();
}

}  // namespace kronserve::client
