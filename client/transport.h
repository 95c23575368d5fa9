// The data path of a rank, whatever carries it: factors out, gradients out,
// preconditioned gradients in.
//
// Layer: client. May include proto/ and common/.
// One implementation speaks gRPC (grpc_transport.h); tests decorate it
// (testing/faulty_transport.h) or answer by hand (testing/fake_transport.h).

#ifndef KRONSERVE_CLIENT_TRANSPORT_H_
#define KRONSERVE_CLIENT_TRANSPORT_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "proto/tensor_chunks.h"

namespace kronserve::client {

// Where a call goes and how long it may take.
struct Target {
  std::string server;
  std::string address;
  absl::Duration timeout;
};

struct PushCall {
  Target target;
  v1::PushFactorsHeader header;
  std::vector<Tensor> tensors;  // One per item; null without data.
};

struct PreconditionCall {
  Target target;
  v1::PreconditionHeader header;
  std::vector<Tensor> tensors;  // One per item.
};

// How a call ended.
struct CallEnd {
  absl::Status status;
  // With kAborted: the newer assignment the server attached, if it did.
  std::optional<v1::Assignment> newer;
  // With kAborted: layers of the call that the server does not answer, as it
  // said; empty when the call was refused for something else.
  std::vector<int> elsewhere = {};
};

// What a server said of one layer: the reply and V, [d_out, d_in], whose
// checksum was verified; V is null when the layer fell back.
struct LayerAnswer {
  v1::LayerReply reply;
  Tensor values;
};

// Carries calls to servers.
//
// Thread safety: thread-safe. Callbacks run on a thread of the transport or
//                inside the call, never two of one call at once; they must not
//                block.
// Lifetime:      the destructor is Shutdown().
// Errors of a call (CallEnd.status): the codes of the RPC, and
//   kUnavailable        the server could not be reached, or says it is not
//                       ready for the call.
//   kDeadlineExceeded   the timeout passed.
//   kDataLoss           an answer broke the rules of the stream, or its
//                       checksum does not fit.
//   kCancelled          Shutdown() came first.
class Transport {
 public:
  using OnPushDone =
      std::function<void(const CallEnd&, const v1::PushFactorsResponse&)>;
  using OnLayer = std::function<void(LayerAnswer)>;
  using OnDone = std::function<void(const CallEnd&)>;

  virtual ~Transport() = default;

  // Starts a call; `done` is called exactly once.
  virtual void PushFactors(PushCall call, OnPushDone done) = 0;

  // Starts a call; `on_layer` once per answered layer, then `done` exactly
  // once.
  virtual void Precondition(PreconditionCall call, OnLayer on_layer,
                            OnDone done) = 0;

  // Cancels every call and returns when each has called its `done`. Calls
  // started later end with kCancelled. Idempotent.
  virtual void Shutdown() = 0;
};

}  // namespace kronserve::client

#endif  // KRONSERVE_CLIENT_TRANSPORT_H_
