#include "common/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kronserve {

uint64_t Checksum(const void* data, size_t bytes) {
  return XXH3_64bits(data, bytes);
}

struct ChecksumStream::State {
  XXH3_state_t xxh3;
};

ChecksumStream::ChecksumStream() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->xxh3);
}
ChecksumStream::ChecksumStream(ChecksumStream&&) noexcept = default;
ChecksumStream::~ChecksumStream() = default;

void ChecksumStream::Add(const void* data, size_t bytes) {
  XXH3_64bits_update(&state_->xxh3, data, bytes);
}

uint64_t ChecksumStream::Value() const {
  return XXH3_64bits_digest(&state_->xxh3);
}

}  // namespace kronserve
