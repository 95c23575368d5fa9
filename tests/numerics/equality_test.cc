// The service computes the same algorithm as a single process in double.
//
// Sizes: see service_run.h. Damping 0.5 keeps the condition numbers low, so
// that the tolerance, which grows with them, still tells a wrong formula from
// rounding.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <limits>
#include <string>

#include "common/testing/status_matchers.h"
#include "tests/numerics/reference_kfac.h"
#include "tests/numerics/service_run.h"

namespace kronserve::numerics {
namespace {

constexpr double kEpsilon = std::numeric_limits<float>::epsilon();

ReferenceOptions Reference(const RunOptions& run,
                           Mutation mutation = Mutation::kNone) {
  ReferenceOptions options;
  options.damping = run.damping;
  options.factor_decay = run.factor_decay;
  options.factor_update_steps = run.factor_update_steps;
  options.inv_update_steps = run.inv_update_steps;
  options.micro_batches = run.micro_batches;
  options.mutation = mutation;
  return options;
}

// Largest error of a layer in units of eps32 x condition, over the run: the
// reference gets the service's weights at every step.
double TeacherForcedError(const Trace& trace,
                          const ReferenceOptions& reference_options) {
  ReferenceKfac reference(Sizes(), reference_options);
  double worst = 0;
  for (size_t step = 0; step < trace.steps.size(); ++step) {
    const StepTrace& seen = trace.steps[step];
    const auto layers =
        reference.Step(step, seen.weights, seen.inputs, seen.labels);
    for (size_t l = 0; l < layers.size(); ++l) {
      const double error =
          Distance(seen.replaced[l], layers[l].preconditioned) /
          Norm(layers[l].preconditioned);
      worst = std::max(worst, error / (kEpsilon * layers[l].condition));
    }
  }
  std::cout << "largest error " << worst << " eps32 x condition\n";
  return worst;
}

// One step of SGD with momentum on one layer, along nu * `direction`.
void Descend(const RunOptions& run, double nu, const Rows& direction,
             Rows* velocity, Rows* weights) {
  for (size_t i = 0; i < weights->size(); ++i) {
    for (size_t j = 0; j < (*weights)[i].size(); ++j) {
      double& v = (*velocity)[i][j];
      v = run.momentum * v + nu * direction[i][j];
      (*weights)[i][j] -= run.lr * v;
    }
  }
}

// SGD with momentum on the reference's own weights, in double.
std::vector<Rows> FreeRun(const RunOptions& run, const Trace& trace) {
  ReferenceKfac reference(Sizes(), Reference(run));
  std::vector<Rows> weights = trace.steps[0].weights;
  std::vector<Rows> velocity = weights;
  for (Rows& layer : velocity) {
    for (auto& row : layer) row.assign(row.size(), 0);
  }
  for (size_t step = 0; step < trace.steps.size(); ++step) {
    const StepTrace& seen = trace.steps[step];
    const auto layers = reference.Step(step, weights, seen.inputs, seen.labels);
    const double nu = run.kl_clip ? KlFactor(layers, run.lr, *run.kl_clip) : 1;
    for (size_t l = 0; l < weights.size(); ++l) {
      Descend(run, nu, layers[l].preconditioned, &velocity[l], &weights[l]);
    }
  }
  return weights;
}

double Distance(const std::vector<Rows>& a, const std::vector<Rows>& b) {
  double sum = 0;
  for (size_t l = 0; l < a.size(); ++l) {
    const double distance = numerics::Distance(a[l], b[l]);
    sum += distance * distance;
  }
  return std::sqrt(sum);
}

class RanksTest : public ::testing::TestWithParam<int> {};

TEST_P(RanksTest, PreconditionsAsTheReferenceDoes) {
  RunOptions run;
  run.ranks = GetParam();
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Trace trace, TrainThroughService(run));
  EXPECT_LE(TeacherForcedError(trace, Reference(run)), 50);
}

TEST_P(RanksTest, FollowsTheRefreshSchedule) {
  RunOptions run;
  run.ranks = GetParam();
  run.factor_update_steps = 2;
  run.inv_update_steps = 4;
  run.steps = 9;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Trace trace, TrainThroughService(run));
  EXPECT_LE(TeacherForcedError(trace, Reference(run)), 50);
}

TEST_P(RanksTest, FreeRunStaysWithTheReference) {
  RunOptions run;
  run.ranks = GetParam();
  run.steps = 50;
  run.damping = 0.1;
  run.kl_clip = 0.01;
  run.lr = 0.1;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Trace trace, TrainThroughService(run));
  const std::vector<Rows> reference = FreeRun(run, trace);
  const double moved = Distance(reference, trace.steps[0].weights);
  ASSERT_GT(moved, 0.1);  // It trained.
  const double apart = Distance(trace.final_weights, reference);
  std::cout << "apart " << apart << ", moved " << moved << "\n";
  EXPECT_LE(apart, 1e-2 * moved);
}

INSTANTIATE_TEST_SUITE_P(Ranks, RanksTest, ::testing::Values(1, 2, 3));

struct NamedMutation {
  std::string name;
  Mutation mutation;
};

class MutationTest : public ::testing::TestWithParam<NamedMutation> {};

// A comparison that a wrong formula passes would prove nothing.
TEST_P(MutationTest, IsToldFromTheRightFormula) {
  RunOptions run;
  run.ranks = 2;
  static const auto* const trace =
      new absl::StatusOr<Trace>(TrainThroughService(run));
  ASSERT_THAT(*trace, ::kronserve::testing::IsOk());
  EXPECT_GT(TeacherForcedError(**trace, Reference(run, GetParam().mutation)),
            50);
}

INSTANTIATE_TEST_SUITE_P(
    Mutations, MutationTest,
    ::testing::Values(
        NamedMutation{"PiOne", Mutation::kPiOne},
        NamedMutation{"DampingTwice", Mutation::kDampingTwice},
        NamedMutation{"WrongDivisor", Mutation::kWrongDivisor},
        NamedMutation{"BiasColumnDropped", Mutation::kBiasColumnDropped},
        NamedMutation{"FactorsSwapped", Mutation::kFactorsSwapped},
        NamedMutation{"AverageReversed", Mutation::kAverageReversed},
        NamedMutation{"LastMicroBatchLost", Mutation::kLastMicroBatchLost}),
    [](const auto& info) { return info.param.name; });

TEST(Bits, TwoRunsAreIdentical) {
  for (int ranks : {1, 3}) {
    RunOptions run;
    run.ranks = ranks;
    KRONSERVE_ASSERT_OK_AND_ASSIGN(const Trace first, TrainThroughService(run));
    KRONSERVE_ASSERT_OK_AND_ASSIGN(const Trace second,
                                   TrainThroughService(run));
    EXPECT_EQ(first.hash, second.hash) << ranks << " ranks";
  }
}

TEST(Bits, DoNotDependOnTheNumberOfServers) {
  RunOptions run;
  run.ranks = 3;
  run.servers = 1;
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const Trace one, TrainThroughService(run));
  for (int servers : {2, 3}) {
    run.servers = servers;
    KRONSERVE_ASSERT_OK_AND_ASSIGN(const Trace more, TrainThroughService(run));
    EXPECT_EQ(one.hash, more.hash) << servers << " servers";
  }
}

}  // namespace
}  // namespace kronserve::numerics
