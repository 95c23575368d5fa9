// Checksums of tensors and replicas.
//
// Layer: common. May include nothing else of this repository.
// XXH3-64: an order of magnitude faster than CRC32 without special
// instructions, and wide enough to compare replicas (docs/decisions/0002).

#ifndef KRONSERVE_COMMON_CHECKSUM_H_
#define KRONSERVE_COMMON_CHECKSUM_H_

#include <cstddef>
#include <cstdint>

namespace kronserve {

// XXH3-64 of `bytes` bytes at `data`; `data` may be null when `bytes` is 0.
uint64_t Checksum(const void* data, size_t bytes);

}  // namespace kronserve

#endif  // KRONSERVE_COMMON_CHECKSUM_H_
