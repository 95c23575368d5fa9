#include "client/answer_reader.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"

namespace kronserve::client {

absl::StatusOr<std::optional<LayerAnswer>> AnswerReader::Add(
    v1::PreconditionResponse* response) {
  if (response->has_reply()) return Begin(response->reply());
  if (response->has_chunk()) return Continue(response->mutable_chunk());
  return absl::DataLossError("a response without reply or chunk");
}

absl::StatusOr<std::optional<LayerAnswer>> AnswerReader::Begin(
    const v1::LayerReply& reply) {
  if (absl::Status status = Finish(); !status.ok()) return status;
  const int item = reply.item();
  if (item < 0 || item >= static_cast<int>(asked_.size()) || begun_[item] ||
      reply.layer() != asked_[item].layer()) {
    return absl::DataLossError(absl::StrCat(
        "reply for item ", item, ", layer ", reply.layer(), ": not one of the ",
        asked_.size(), " asked for, or answered before"));
  }
  begun_[item] = true;
  if (reply.outcome() == v1::LAYER_OUTCOME_FALLBACK) {
    return LayerAnswer{reply, nullptr};
  }
  if (reply.outcome() != v1::LAYER_OUTCOME_PRECONDITIONED) {
    return absl::DataLossError(absl::StrCat("reply for layer ", reply.layer(),
                                            " has outcome ",
                                            static_cast<int>(reply.outcome())));
  }
  reply_ = reply;
  ChunkAssembler::Slot slot;
  slot.elements = asked_[item].rows() * asked_[item].cols();
  assembler_.emplace(std::vector<ChunkAssembler::Slot>{slot});
  return std::nullopt;
}

absl::StatusOr<std::optional<LayerAnswer>> AnswerReader::Continue(
    v1::TensorChunk* chunk) {
  if (!assembler_.has_value() || chunk->item() != reply_.item()) {
    return absl::DataLossError(
        absl::StrCat("a chunk of item ", chunk->item(), " without its reply"));
  }
  chunk->set_item(0);  // The only one of its assembler.
  if (absl::Status status = assembler_->Add(*chunk); !status.ok()) {
    return absl::DataLossError(absl::StrCat("V of layer ", reply_.layer(), ": ",
                                            std::string(status.message())));
  }
  if (!assembler_->Complete(0).ok()) return std::nullopt;
  Tensor values = assembler_->Take(0);
  assembler_.reset();
  const uint64_t checksum =
      Checksum(values->data(), values->size() * sizeof(float));
  if (checksum != reply_.checksum()) {
    return absl::DataLossError(absl::StrCat(
        "V of layer ", reply_.layer(), " arrived with checksum ",
        absl::Hex(checksum), ", sent with ", absl::Hex(reply_.checksum())));
  }
  return LayerAnswer{std::move(reply_), std::move(values)};
}

absl::Status AnswerReader::Finish() const {
  if (!assembler_.has_value()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("V of layer ", reply_.layer(), ": ",
                   std::string(assembler_->Complete(0).message())));
}

}  // namespace kronserve::client
