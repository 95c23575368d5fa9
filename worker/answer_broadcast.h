// Taking each layer's answer from its delegate to all ranks of the job.
//
// Layer: worker. May include client/ and lower.

#ifndef KRONSERVE_WORKER_ANSWER_BROADCAST_H_
#define KRONSERVE_WORKER_ANSWER_BROADCAST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/transport.h"
#include "curvature/layer_shape.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "linalg/dense_kernels.h"
#include "worker/collective/communicator.h"

namespace kronserve::worker {

// What this rank holds of one layer once the delegates' answers went round.
struct HeldAnswer {
  bool preconditioned = false;
  // Below: when not preconditioned.
  v1::FallbackReason reason = v1::FALLBACK_REASON_UNSPECIFIED;
  std::string message;  // On the delegate only.
  // Below: when preconditioned.
  int64_t version = 0;
  int64_t age = 0;
  v1::RefreshRung rung = v1::REFRESH_RUNG_UNSPECIFIED;
  double inner_product = 0;
  double damping = 0;
  uint64_t checksum = 0;          // Of the values as they are here.
  const float* values = nullptr;  // V, [d_out, d_in].
};

// One Broadcast per delegate rank, from a buffer with a fixed layout: per
// layer a header and the room of V, used or not, since the others must know
// the size without being told.
//
// Thread safety: none.
class AnswerBroadcast {
 public:
  // gradient_rank: [layers], the delegates.
  AnswerBroadcast(const std::vector<curvature::LayerShape>& layers,
                  const std::vector<int>& gradient_rank, int rank);

  // Hands round `own` [layers], of which those count whose delegate is this
  // rank. An own answer whose numbers are not finite becomes a fallback
  // (BAD_RESULT); a received one that does not have the delegate's checksum
  // becomes one here (DISAGREED), which the vote then makes one for all.
  //
  // `held` [layers] points into `own` and into this object, until the next
  // call. A group of one sends nothing.
  //
  // Errors: the group's.
  absl::Status Run(Communicator& group, linalg::DenseKernels<float>& kernels,
                   const std::vector<client::LayerAnswer>& own,
                   std::vector<HeldAnswer>* held);

 private:
  struct Delegate {
    int rank = 0;
    std::vector<int> layers;
    std::vector<float> buffer;
  };

  HeldAnswer FromOwn(int layer, linalg::DenseKernels<float>& kernels,
                     const client::LayerAnswer& answer) const;
  void Encode(const std::vector<HeldAnswer>& held, Delegate* delegate) const;
  void Decode(const Delegate& delegate, std::vector<HeldAnswer>* held) const;

  std::vector<int64_t> elements_;  // [layers]
  const int rank_;
  std::vector<Delegate> delegates_;  // Ascending by rank.
};

}  // namespace kronserve::worker

#endif  // KRONSERVE_WORKER_ANSWER_BROADCAST_H_
