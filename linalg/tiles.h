// Walking over a square matrix in tiles that stay in the cache.
//
// Layer: linalg. May include common/ and nothing else of this repository.

#ifndef KRONSERVE_LINALG_TILES_H_
#define KRONSERVE_LINALG_TILES_H_

#include <algorithm>
#include <cstdint>

namespace kronserve::linalg {

inline constexpr int64_t kTile = 32;

// VisitBelowDiagonal() over the tile at (top, left).
template <typename Visit>
void VisitTile(int64_t n, int64_t top, int64_t left, const Visit& visit) {
  for (int64_t row = top; row < std::min(top + kTile, n); ++row) {
    for (int64_t col = left; col < std::min(left + kTile, row); ++col) {
      visit(row, col);
    }
  }
}

// Calls visit(row, col) for every element below the diagonal of an [n, n]
// matrix, tile by tile: an element and its mirror image touch few cache lines
// then, where a whole column at a time would touch a new one with each.
template <typename Visit>
void VisitBelowDiagonal(int64_t n, const Visit& visit) {
  for (int64_t top = 0; top < n; top += kTile) {
    for (int64_t left = 0; left <= top; left += kTile) {
      VisitTile(n, top, left, visit);
    }
  }
}

}  // namespace kronserve::linalg

#endif  // KRONSERVE_LINALG_TILES_H_
