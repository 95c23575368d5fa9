// What the tests of the step core share: a rank's step by hand.

#ifndef KRONSERVE_CLIENT_TESTING_STEP_CORE_FIXTURE_H_
#define KRONSERVE_CLIENT_TESTING_STEP_CORE_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "client/step_core.h"
#include "client/testing/messages.h"

namespace kronserve::client::testing {

inline constexpr absl::Duration kBudget = absl::Seconds(2);
inline const v1::PushFactorsResponse kNoResults;

inline CallEnd Ended(absl::Status status) { return {std::move(status), {}}; }

inline CallEnd Moved(v1::Assignment newer, std::vector<int> elsewhere = {0}) {
  return {absl::AbortedError("another owner"), std::move(newer),
          std::move(elsewhere)};
}

// Rank 3 of job "job", whose two layers the servers of Assign() own.
class StepCoreFixture : public ::testing::Test {
 protected:
  void Assign(uint64_t epoch, const std::vector<Owner>& owners) {
    const auto adopted = routing_.Adopt(MakeAssignment(epoch, 1, owners));
    ASSERT_TRUE(adopted.ok() && *adopted);
  }

  // Gradients [1, 2] of `layers`, at a factor step also A of each.
  StepRequest Request(int64_t step, const std::vector<int>& layers,
                      bool factor_step) {
    StepRequest request;
    request.step = step;
    request.ends_everywhere = factor_step;
    request.damping = 0.03;
    request.factor_decay = 0.95;
    for (const int layer : layers) {
      Gradient gradient;
      gradient.item.set_layer(layer);
      gradient.item.set_rows(1);
      gradient.item.set_cols(2);
      gradient.values = MakeTensor({1.0f, 2.0f});
      request.gradients.push_back(gradient);
      if (!factor_step) continue;
      Contribution contribution;
      contribution.item.set_layer(layer);
      contribution.item.set_kind(v1::FACTOR_KIND_INPUT);
      contribution.item.set_body(v1::CONTRIBUTION_BODY_DATA);
      contribution.item.set_dim(1);
      contribution.values = MakeTensor({4.0f});
      request.contributions.push_back(contribution);
    }
    return request;
  }

  StepCore Core(StepRequest request) {
    StepContext context;
    context.call.set_job("job");
    context.call.set_world_version(1);
    context.call.set_rank(3);
    context.call.set_incarnation(77);
    context.budget = kBudget;
    context.routing = &routing_;
    context.suspects = &suspects_;
    return StepCore(std::move(request), context);
  }

  RoutingTable routing_{"job", 2};
  Suspects suspects_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
};

}  // namespace kronserve::client::testing

#endif  // KRONSERVE_CLIENT_TESTING_STEP_CORE_FIXTURE_H_
