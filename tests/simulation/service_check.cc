#include "tests/simulation/service_check.h"

#include "absl/strings/str_cat.h"

namespace kronserve::simulation {
namespace {

// Two lease times, as the scheduler counts them.
constexpr absl::Duration kTwoLeases = absl::Seconds(12);
// What a step may take besides its computing and its wait for servers.
constexpr absl::Duration kSlack = absl::Seconds(1);
// A wait of this share of the budget is a long one.
constexpr double kLong = 0.7;

}  // namespace

void ServiceCheck::OnWaited(int64_t world, int64_t step, int rank,
                            absl::Duration waited, bool was_frozen) {
  if (was_frozen) return;
  const absl::Duration budget =
      absl::Milliseconds(plan_.options.step_budget_ms());
  verdict_.Require(waited <= budget, [&] {
    return absl::StrCat("world ", world, ", step ", step, ": rank ", rank,
                        " waited ", absl::FormatDuration(waited),
                        " with a budget of ", absl::FormatDuration(budget));
  });
  if (waited < kLong * budget) return;
  long_steps_.insert({world, step});
  const auto steps = static_cast<int64_t>(long_steps_.size());
  verdict_.Require(!plan_.only_losses || steps <= losses_ + interrupted_, [&] {
    return absl::StrCat(
        "world ", world, ", step ", step, ": rank ", rank, " waited ",
        absl::FormatDuration(waited), "; that is ", steps, " long steps and ",
        losses_, " lost servers, of which ", interrupted_, " cut a move short");
  });
}

void ServiceCheck::OnOutcome(absl::Duration now, int64_t step, bool voided,
                             const std::vector<AppliedLayer>& layers,
                             const std::vector<std::string>& why) {
  ++steps_;
  newest_ = now;
  if (voided || now < plan_.faults_end + kTwoLeases) return;
  ++served_;
  for (size_t i = 0; i < layers.size(); ++i) {
    verdict_.Require(layers[i].preconditioned, [&] {
      return absl::StrCat("step ", step, " at ", absl::FormatDuration(now),
                          ", two leases after the last fault: layer ", i,
                          " is not served: ", why[i]);
    });
  }
}

void ServiceCheck::Finish() {
  verdict_.Require(served_ > 0, [&] {
    return absl::StrCat("the job makes no steps after the faults; it made ",
                        steps_, " in all");
  });
  const absl::Duration longest =
      absl::Milliseconds(plan_.options.step_budget_ms()) + plan_.slowest_step +
      kSlack;
  verdict_.Require(plan_.end - newest_ <= longest, [&] {
    return absl::StrCat("the job stopped at ", absl::FormatDuration(newest_),
                        " of ", absl::FormatDuration(plan_.end), ", after ",
                        steps_, " steps");
  });
}

}  // namespace kronserve::simulation
