#include "proto/tensor_chunks.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace kronserve {

bool ChunkSplitter::Next(v1::TensorChunk* chunk) {
  if (offset_ >= bytes_) return false;
  const int64_t size = std::min(kChunkBytes, bytes_ - offset_);
  chunk->set_item(item_);
  chunk->set_offset(offset_);
  chunk->set_data(data_ + offset_, size);
  offset_ += size;
  return true;
}

ChunkAssembler::ChunkAssembler(const std::vector<Slot>& slots) {
  items_.reserve(slots.size());
  for (const Slot& slot : slots) {
    State state;
    state.expected_bytes = slot.elements * static_cast<int64_t>(sizeof(float));
    state.keep = slot.keep;
    items_.push_back(std::move(state));
  }
}

absl::Status ChunkAssembler::Add(const v1::TensorChunk& chunk) {
  const int item = chunk.item();
  if (item < current_ || item >= static_cast<int>(items_.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk of item ", item, ", expected an item at or after ",
                     current_, " of the ", items_.size(), " in the header"));
  }
  current_ = item;
  State& state = items_[item];
  const auto size = static_cast<int64_t>(chunk.data().size());
  if (size == 0 ||
      chunk.offset() != static_cast<uint64_t>(state.received_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "item ", item, ": chunk of ", size, " bytes at offset ", chunk.offset(),
        ", expected at least 1 byte at offset ", state.received_bytes));
  }
  if (size > state.expected_bytes - state.received_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("item ", item, ": more than the expected ",
                     state.expected_bytes, " bytes"));
  }
  if (state.keep) {
    if (state.values == nullptr) {
      state.values = std::make_shared<std::vector<float>>(state.expected_bytes /
                                                          sizeof(float));
    }
    std::memcpy(
        reinterpret_cast<char*>(state.values->data()) + state.received_bytes,
        chunk.data().data(), size);
  }
  state.received_bytes += size;
  return absl::OkStatus();
}

absl::Status ChunkAssembler::Complete(int item) const {
  const State& state = items_[item];
  if (state.received_bytes == state.expected_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "got ", state.received_bytes, " bytes, expected ", state.expected_bytes));
}

Tensor ChunkAssembler::Take(int item) {
  State& state = items_[item];
  if (state.received_bytes != state.expected_bytes) return nullptr;
  return std::move(state.values);
}

}  // namespace kronserve
