// One server with one layer, to which ranks push.

#ifndef KRONSERVE_SERVER_TESTING_ROUNDS_FIXTURE_H_
#define KRONSERVE_SERVER_TESTING_ROUNDS_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "common/testing/status_matchers.h"
#include "server/testing/core_driver.h"

namespace kronserve::server::testing {

// A [2, 2], G [1, 1].
inline const v1::LayerSpec kLayer =
    ::kronserve::testing::SampleLayer("fc1", 1, 2);

class RoundsTest : public ::testing::Test {
 protected:
  void Start(int num_ranks, const v1::JobOptions& options) {
    ASSERT_THAT(driver_.Configure(MakeJob({kLayer}, num_ranks, options)),
                ::kronserve::testing::IsOk());
  }

  // Pushes A = a I and G = g I from `rows` rows; returns the result for A.
  v1::ContributionResult Push(int rank, int64_t step, float a, float g = 1,
                              int64_t rows = 4) {
    return PushPieces(rank, step, MakeFactors(0, kLayer, a, g, rows));
  }

  v1::ContributionResult PushPieces(int rank, int64_t step,
                                    const std::vector<Piece>& pieces) {
    auto response = driver_.Push(rank, step, pieces);
    EXPECT_THAT(response, ::kronserve::testing::IsOk());
    return response.ok() ? response->results(0) : v1::ContributionResult();
  }

  const LayerState& layer() { return *driver_.core.FindLayerState("job", 0); }

  CoreDriver driver_;
};

}  // namespace kronserve::server::testing

#endif  // KRONSERVE_SERVER_TESTING_ROUNDS_FIXTURE_H_
