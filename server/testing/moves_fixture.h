// Three servers, of which the first hands a layer to the second.

#ifndef KRONSERVE_SERVER_TESTING_MOVES_FIXTURE_H_
#define KRONSERVE_SERVER_TESTING_MOVES_FIXTURE_H_

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
inline const Tensor kGradient = MakeTensor({12, -24});

class MovesTest : public ::testing::Test {
 protected:
  void Start(int num_ranks, const v1::JobOptions& options) {
    config_ = MakeJob({kLayer, ::kronserve::testing::SampleLayer("fc2", 1, 2)},
                      num_ranks, options);
    ConfigureAll();
  }

  void ConfigureAll() {
    for (CoreDriver* server : {&old_, &new_, &third_}) {
      ASSERT_THAT(server->Configure(config_), ::kronserve::testing::IsOk());
    }
  }

  // Layer 0 goes from s0 to s1.
  void Move(int64_t from_step) {
    Place(&config_, 0, "s1", from_step, "s0");
    ConfigureAll();
  }

  v1::ContributionOutcome Push(CoreDriver& server, int rank, int64_t step,
                               float a = 2) {
    const auto response =
        server.Push(rank, step, MakeFactors(0, kLayer, a, 1, 4));
    EXPECT_THAT(response, ::kronserve::testing::IsOk());
    return response.ok() ? response->results(0).outcome()
                         : v1::CONTRIBUTION_OUTCOME_UNSPECIFIED;
  }

  // A whole step of a job of one rank; returns the request for V.
  uint64_t Step(CoreDriver& server, int64_t step, float a = 2) {
    EXPECT_EQ(Push(server, 0, step, a), v1::CONTRIBUTION_OUTCOME_ACCEPTED);
    return server.Ask(0, step, {0, 1, 2, kGradient});
  }

  // The only transfer that the old owner wants.
  TransferTask Sent() {
    const std::vector<TransferTask> tasks = old_.executor.TakeTransfers();
    EXPECT_THAT(tasks, ::testing::SizeIs(1));
    return tasks.empty() ? TransferTask() : tasks[0];
  }

  static const v1::LayerReply& ReplyTo(CoreDriver& server, uint64_t request) {
    const Reply* reply = server.executor.Find(request);
    EXPECT_NE(reply, nullptr);
    static const v1::LayerReply none;
    return reply == nullptr ? none : reply->reply;
  }

  v1::ConfigureJobRequest config_;
  CoreDriver old_{DefaultCoreOptions("s0")};
  CoreDriver new_{DefaultCoreOptions("s1")};
  CoreDriver third_{DefaultCoreOptions("s2")};
};

}  // namespace kronserve::server::testing

#endif  // KRONSERVE_SERVER_TESTING_MOVES_FIXTURE_H_
