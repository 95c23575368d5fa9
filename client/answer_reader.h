// Puts the answers of one Precondition call together.
//
// Layer: client. May include proto/ and common/.

#ifndef KRONSERVE_CLIENT_ANSWER_READER_H_
#define KRONSERVE_CLIENT_ANSWER_READER_H_

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/transport.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "proto/tensor_chunks.h"

namespace kronserve::client {

// Takes the responses of a stream: per layer a reply, then the chunks of V;
// layers in any order.
//
// Thread safety: none.
// Invariants:    allocates no more than the shapes that were asked for.
class AnswerReader {
 public:
  explicit AnswerReader(std::vector<v1::GradientItem> asked)
      : asked_(std::move(asked)), begun_(asked_.size(), false) {}

  // Takes one response; a layer when it completes one. May modify `response`.
  //
  // Errors:
  //   kDataLoss  the stream broke its rules (an unknown item, a second reply,
  //              chunks that do not fit, no outcome) or V does not have its
  //              checksum. The caller ends the call.
  absl::StatusOr<std::optional<LayerAnswer>> Add(
      v1::PreconditionResponse* response);

  // The stream ended well: nothing may be half read.
  //
  // Errors: kDataLoss.
  absl::Status Finish() const;

 private:
  absl::StatusOr<std::optional<LayerAnswer>> Begin(const v1::LayerReply& reply);
  absl::StatusOr<std::optional<LayerAnswer>> Continue(v1::TensorChunk* chunk);

  const std::vector<v1::GradientItem> asked_;
  std::vector<bool> begun_;
  v1::LayerReply reply_;
  std::optional<ChunkAssembler> assembler_;  // Of reply_, while V comes.
};

}  // namespace kronserve::client

#endif  // KRONSERVE_CLIENT_ANSWER_READER_H_
