// Checksums of tensors and replicas.
//
// Layer: common. May include nothing else of this repository.
// XXH3-64: an order of magnitude faster than CRC32 without special
// instructions, and wide enough to compare replicas (docs/decisions/0002).

#ifndef KRONSERVE_COMMON_CHECKSUM_H_
#define KRONSERVE_COMMON_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <memory>

namespace kronserve {

// XXH3-64 of `bytes` bytes at `data`; `data` may be null when `bytes` is 0.
uint64_t Checksum(const void* data, size_t bytes);

// The same checksum of bytes that come in pieces.
//
// Thread safety: none.
class ChecksumStream {
 public:
  ChecksumStream();
  ChecksumStream(ChecksumStream&&) noexcept;
  ~ChecksumStream();

  void Add(const void* data, size_t bytes);
  // Checksum() of everything that was added so far.
  uint64_t Value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kronserve

#endif  // KRONSERVE_COMMON_CHECKSUM_H_
