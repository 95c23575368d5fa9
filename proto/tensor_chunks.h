// Cutting tensors into chunks and putting them together again.
//
// Layer: proto (level 0). May include common/.
// Both sides of a call use it, so the rules of tensor.proto stand in one
// place.

#ifndef KRONSERVE_PROTO_TENSOR_CHUNKS_H_
#define KRONSERVE_PROTO_TENSOR_CHUNKS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kronserve/v1/tensor.pb.h"

namespace kronserve {

inline constexpr int64_t kChunkBytes = int64_t{1} << 20;

// A tensor that several owners read.
using Tensor = std::shared_ptr<const std::vector<float>>;

// Yields the chunks of one tensor, in order.
//
// Lifetime: `data` outlives the splitter.
class ChunkSplitter {
 public:
  ChunkSplitter(int item, const float* data, int64_t elements)
      : item_(item),
        data_(reinterpret_cast<const char*>(data)),
        bytes_(elements * static_cast<int64_t>(sizeof(float))) {}

  // Overwrites `chunk` with the next piece; false when there is none.
  bool Next(v1::TensorChunk* chunk);

 private:
  int item_;
  const char* data_;
  int64_t bytes_;
  int64_t offset_ = 0;
};

// Collects the chunks of the items of one header.
//
// Thread safety: none.
// Invariants:    allocates for a tensor when its first chunk comes, never more
//                than the size that was handed in, which the caller has
//                checked against the registered shape.
class ChunkAssembler {
 public:
  struct Slot {
    // Expected elements; 0 when the item carries no data.
    int64_t elements = 0;
    // False for an item that was refused: its bytes are counted and dropped.
    bool keep = true;
  };
  explicit ChunkAssembler(const std::vector<Slot>& slots);

  // Takes one chunk.
  //
  // Errors (the stream is broken; the caller ends the call):
  //   kInvalidArgument  unknown item, an item before the last one, a gap or
  //                     overlap (with both offsets), no data, more bytes than
  //                     expected (with both numbers).
  absl::Status Add(const v1::TensorChunk& chunk);

  // Whether all bytes of `item` came.
  //
  // Errors:
  //   kInvalidArgument  names received and expected bytes.
  absl::Status Complete(int item) const;

  // The tensor of a complete, kept item; null otherwise. Once per item.
  Tensor Take(int item);

 private:
  struct State {
    int64_t expected_bytes = 0;
    int64_t received_bytes = 0;
    bool keep = true;
    std::shared_ptr<std::vector<float>> values;
  };
  std::vector<State> items_;
  int current_ = 0;
};

}  // namespace kronserve

#endif  // KRONSERVE_PROTO_TENSOR_CHUNKS_H_
