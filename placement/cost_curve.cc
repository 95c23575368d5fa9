#include "placement/cost_curve.h"

namespace kronserve::placement {

RefreshWork FactorWork(int64_t d) {
  const double side = static_cast<double>(d);
  return {1, side * side, side * side * side};
}

RefreshWork LayerWork(int64_t d_in, int64_t d_out) {
  const RefreshWork a = FactorWork(d_in);
  const RefreshWork g = FactorWork(d_out);
  return {a.factors + g.factors, a.d2 + g.d2, a.d3 + g.d3};
}

}  // namespace kronserve::placement
