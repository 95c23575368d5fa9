#include "scheduler/server_link.h"

#include <grpcpp/client_context.h>

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/grpc_channel.h"
#include "common/grpc_status.h"
#include "common/mutex.h"
#include "kronserve/v1/preconditioner.grpc.pb.h"

namespace kronserve::scheduler {
namespace {

constexpr auto kCallTimeout = std::chrono::seconds(5);
constexpr absl::Duration kIdle = absl::Minutes(10);

// A connection stays here while a call runs on it: its channel must not die in
// the callback of its own last call (grpc#37858).
struct Peer {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::ServerControl::Stub> stub;
  int in_flight = 0;
  absl::Time last_used;
};

// One RPC under way.
template <typename Request, typename Response>
struct Call {
  std::string address;
  std::string server;
  Request request;
  Response response;
  grpc::ClientContext context;
  std::function<void(const absl::Status&, const Response&)> done;
};

template <typename Response>
std::function<void(const absl::Status&, const Response&)> StatusOnly(
    ServerLink::Done done) {
  return [done = std::move(done)](const absl::Status& status, const Response&) {
    done(status);
  };
}

class GrpcServerLink final : public ServerLink {
 public:
  explicit GrpcServerLink(const Clock* clock) : clock_(clock) {}
  ~GrpcServerLink() override { Stop(); }

  void Configure(const ConfigureEffect& effect, Done done) override {
    using ConfigureCall =
        Call<v1::ConfigureJobRequest, v1::ConfigureJobResponse>;
    auto call = std::make_unique<ConfigureCall>();
    call->request = effect.request;
    call->done = StatusOnly<v1::ConfigureJobResponse>(std::move(done));
    Start(effect.server, std::move(call),
          [](v1::ServerControl::Stub* stub, ConfigureCall* c, auto end) {
            stub->async()->ConfigureJob(&c->context, &c->request, &c->response,
                                        std::move(end));
          });
  }

  void Drop(const DropEffect& effect, Done done) override {
    using DropCall = Call<v1::DropJobRequest, v1::DropJobResponse>;
    auto call = std::make_unique<DropCall>();
    call->request = effect.request;
    call->done = StatusOnly<v1::DropJobResponse>(std::move(done));
    Start(effect.server, std::move(call),
          [](v1::ServerControl::Stub* stub, DropCall* c, auto end) {
            stub->async()->DropJob(&c->context, &c->request, &c->response,
                                   std::move(end));
          });
  }

  void WriteCheckpoint(const WriteCheckpointEffect& effect,
                       Written done) override {
    using WriteCall =
        Call<v1::WriteCheckpointRequest, v1::WriteCheckpointResponse>;
    auto call = std::make_unique<WriteCall>();
    call->request = effect.request;
    call->done = [done = std::move(done)](
                     const absl::Status& status,
                     const v1::WriteCheckpointResponse& response) {
      if (status.ok()) {
        done(response);
      } else {
        done(status);
      }
    };
    Start(effect.server, std::move(call),
          [](v1::ServerControl::Stub* stub, WriteCall* c, auto end) {
            stub->async()->WriteCheckpoint(&c->context, &c->request,
                                           &c->response, std::move(end));
          });
  }

  void CommitCheckpoint(const CommitCheckpointEffect& effect,
                        Done done) override {
    using CommitCall =
        Call<v1::CommitCheckpointRequest, v1::CommitCheckpointResponse>;
    auto call = std::make_unique<CommitCall>();
    call->request = effect.request;
    call->done = StatusOnly<v1::CommitCheckpointResponse>(std::move(done));
    Start(effect.server, std::move(call),
          [](v1::ServerControl::Stub* stub, CommitCall* c, auto end) {
            stub->async()->CommitCheckpoint(&c->context, &c->request,
                                            &c->response, std::move(end));
          });
  }

  void CloseIdle() override {
    // Channels die outside the lock: their destructor may wait.
    std::vector<Peer> idle;
    const absl::Time now = clock_->Now();
    MutexLock lock(&mu_);
    for (auto it = peers_.begin(); it != peers_.end();) {
      if (it->second.in_flight > 0 || now - it->second.last_used < kIdle) {
        ++it;
        continue;
      }
      idle.push_back(std::move(it->second));
      it = peers_.erase(it);
    }
  }

  void Stop() override {
    MutexLock lock(&mu_);
    stopping_ = true;
    for (grpc::ClientContext* context : contexts_) context->TryCancel();
    // Cancelled calls end at once, and every call has a deadline.
    while (in_flight_ > 0) ended_.WaitFor(&mu_, absl::Seconds(1));
  }

 private:
  template <typename CallType, typename Begin>
  void Start(const v1::ServerAddress& server, std::unique_ptr<CallType> call,
             const Begin& begin) {
    call->address = server.address();
    call->server = server.name();
    call->context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
    v1::ServerControl::Stub* stub = Admit(call->address, &call->context);
    if (stub == nullptr) {
      call->done(absl::CancelledError("the scheduler is shutting down"),
                 call->response);
      return;
    }
    CallType* raw = call.release();
    begin(stub, raw, [this, raw](const grpc::Status& status) {
      End(std::unique_ptr<CallType>(raw), status);
    });
  }

  // Null when stopping. The stub stays until Release().
  v1::ServerControl::Stub* Admit(const std::string& address,
                                 grpc::ClientContext* context)
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (stopping_) return nullptr;
    Peer& peer = peers_[address];
    if (peer.stub == nullptr) {
      peer.channel = CreateChannel(address);
      peer.stub = v1::ServerControl::NewStub(peer.channel);
    }
    ++peer.in_flight;
    ++in_flight_;
    peer.last_used = clock_->Now();
    contexts_.insert(context);
    return peer.stub.get();
  }

  template <typename CallType>
  void End(std::unique_ptr<CallType> call, const grpc::Status& status)
      ABSL_LOCKS_EXCLUDED(mu_) {
    call->done(FromGrpcStatus(status, absl::StrCat("server '", call->server,
                                                   "' at ", call->address)),
               call->response);
    const std::string address = call->address;
    {
      MutexLock lock(&mu_);
      contexts_.erase(&call->context);
    }
    call.reset();  // With its reference to the channel, which we still hold.
    // Last: when none is in flight, Stop() returns and `this` may go.
    MutexLock lock(&mu_);
    --peers_[address].in_flight;
    --in_flight_;
    ended_.NotifyAll();
  }

  const Clock* const clock_;
  Mutex mu_;
  CondVar ended_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::map<std::string, Peer> peers_ ABSL_GUARDED_BY(mu_);
  // To cancel; a call leaves here before it is deleted.
  std::set<grpc::ClientContext*> contexts_ ABSL_GUARDED_BY(mu_);
  int in_flight_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace

std::unique_ptr<ServerLink> CreateGrpcServerLink(const Clock* clock) {
  return std::make_unique<GrpcServerLink>(clock);
}

}  // namespace kronserve::scheduler
