#include "worker/answer_broadcast.h"

#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "common/status_macros.h"

namespace kronserve::worker {
namespace {

// What stands before V, in whole floats.
struct Head {
  int64_t preconditioned;
  int64_t reason;
  int64_t version;
  int64_t age;
  int64_t rung;
  double inner_product;
  double damping;
  uint64_t checksum;
};
static_assert(sizeof(Head) % sizeof(float) == 0);
constexpr int64_t kHeadFloats = sizeof(Head) / sizeof(float);

}  // namespace

AnswerBroadcast::AnswerBroadcast(
    const std::vector<curvature::LayerShape>& layers,
    const std::vector<int>& gradient_rank, int rank)
    : rank_(rank) {
  std::map<int, Delegate> by_rank;
  std::map<int, int64_t> floats;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    elements_.push_back(layers[layer].gradient_size());
    const int delegate = gradient_rank[layer];
    by_rank[delegate].layers.push_back(static_cast<int>(layer));
    floats[delegate] += kHeadFloats + elements_.back();
  }
  for (auto& [delegate_rank, delegate] : by_rank) {
    delegate.rank = delegate_rank;
    delegate.buffer.resize(floats[delegate_rank]);
    delegates_.push_back(std::move(delegate));
  }
}

absl::Status AnswerBroadcast::Run(Communicator& group,
                                  linalg::DenseKernels<float>& kernels,
                                  const std::vector<client::LayerAnswer>& own,
                                  std::vector<HeldAnswer>* held) {
  held->assign(elements_.size(), HeldAnswer());
  for (Delegate& delegate : delegates_) {
    if (delegate.rank != rank_) continue;
    for (const int layer : delegate.layers) {
      (*held)[layer] = FromOwn(layer, kernels, own[layer]);
    }
  }
  if (group.size() == 1) return absl::OkStatus();
  for (Delegate& delegate : delegates_) {
    const bool mine = delegate.rank == rank_;
    if (mine) Encode(*held, &delegate);
    KRONSERVE_RETURN_IF_ERROR(
        group.Broadcast(delegate.buffer.data(),
                        delegate.buffer.size() * sizeof(float), delegate.rank));
    if (!mine) Decode(delegate, held);
  }
  return absl::OkStatus();
}

HeldAnswer AnswerBroadcast::FromOwn(int layer,
                                    linalg::DenseKernels<float>& kernels,
                                    const client::LayerAnswer& answer) const {
  const v1::LayerReply& reply = answer.reply;
  HeldAnswer held;
  held.reason = reply.reason();
  held.message = reply.message();
  if (reply.outcome() != v1::LAYER_OUTCOME_PRECONDITIONED) return held;
  const Tensor& values = answer.values;
  const int64_t elements = elements_[layer];
  const bool complete =
      values != nullptr && static_cast<int64_t>(values->size()) == elements;
  if (!complete || reply.version() < 1 ||
      !std::isfinite(reply.inner_product()) ||
      kernels.CountNonFinite(values->data(), elements) > 0) {
    held.reason = v1::FALLBACK_REASON_BAD_RESULT;
    held.message =
        absl::StrCat("V of version ", reply.version(), " or its inner product ",
                     reply.inner_product(), " is not finite");
    return held;
  }
  held.preconditioned = true;
  held.reason = v1::FALLBACK_REASON_UNSPECIFIED;
  held.version = reply.version();
  held.age = reply.age();
  held.rung = reply.rung();
  held.inner_product = reply.inner_product();
  held.damping = reply.damping();
  held.values = values->data();
  held.checksum = Checksum(held.values, elements * sizeof(float));
  return held;
}

void AnswerBroadcast::Encode(const std::vector<HeldAnswer>& held,
                             Delegate* delegate) const {
  float* to = delegate->buffer.data();
  for (const int layer : delegate->layers) {
    const HeldAnswer& answer = held[layer];
    const Head head = {answer.preconditioned ? 1 : 0,
                       answer.reason,
                       answer.version,
                       answer.age,
                       answer.rung,
                       answer.inner_product,
                       answer.damping,
                       answer.checksum};
    std::memcpy(to, &head, sizeof(head));
    to += kHeadFloats;
    if (answer.preconditioned) {
      std::memcpy(to, answer.values, elements_[layer] * sizeof(float));
    }
    to += elements_[layer];
  }
}

void AnswerBroadcast::Decode(const Delegate& delegate,
                             std::vector<HeldAnswer>* held) const {
  const float* from = delegate.buffer.data();
  for (const int layer : delegate.layers) {
    Head head;
    std::memcpy(&head, from, sizeof(head));
    from += kHeadFloats;
    HeldAnswer& answer = (*held)[layer];
    answer.preconditioned = head.preconditioned == 1;
    answer.reason = static_cast<v1::FallbackReason>(head.reason);
    answer.version = head.version;
    answer.age = head.age;
    answer.rung = static_cast<v1::RefreshRung>(head.rung);
    answer.inner_product = head.inner_product;
    answer.damping = head.damping;
    answer.values = from;
    from += elements_[layer];
    if (!answer.preconditioned) continue;
    answer.checksum = Checksum(answer.values, elements_[layer] * sizeof(float));
    if (answer.checksum == head.checksum) continue;
    answer.preconditioned = false;
    answer.reason = v1::FALLBACK_REASON_DISAGREED;
    answer.message = absl::StrCat("rank ", delegate.rank,
                                  "'s V changed on its way to rank ", rank_);
  }
}

}  // namespace kronserve::worker
