// Sends layers to the servers that take them over.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.

#ifndef KRONSERVE_SERVER_TRANSFER_LINK_H_
#define KRONSERVE_SERVER_TRANSFER_LINK_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "kronserve/v1/scheduler.pb.h"
#include "proto/tensor_chunks.h"

namespace kronserve::server {

// One layer on its way.
struct Shipment {
  v1::ServerAddress target;
  v1::TransferLayerHeader header;  // With its snapshot.
  std::vector<Tensor> tensors;     // One per tensor of the snapshot.
};

// Thread safety: thread-safe.
// Lifetime:      the destructor is a Stop().
class TransferLink {
 public:
  using Done = std::function<void(const absl::Status&)>;
  virtual ~TransferLink() = default;

  // Begins to send; does not wait. `done` gets the receiver's answer, exactly
  // once; it may be called before this returns. Tries once: the core decides
  // when to try again. Errors as TransferLayer, or
  //   kUnavailable       the receiver cannot be reached.
  //   kDeadlineExceeded  no answer in 5 s and 1 s for each 20 MB.
  //   kCancelled         Stop() was called.
  virtual void Send(Shipment shipment, Done done) = 0;

  // Ends every call under way and waits for its `done`. Idempotent.
  virtual void Stop() = 0;
};

std::unique_ptr<TransferLink> CreateGrpcTransferLink();

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_TRANSFER_LINK_H_
