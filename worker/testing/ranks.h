// Running the ranks of a job as threads of one test.

#ifndef KRONSERVE_WORKER_TESTING_RANKS_H_
#define KRONSERVE_WORKER_TESTING_RANKS_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "worker/collective/communicator.h"
#include "worker/collective/loopback/factory.h"

namespace kronserve::worker::testing {

// Calls `body(rank)` on one thread per rank and waits for all.
inline void RunRanks(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&body, rank] { body(rank); });
  }
  for (std::thread& thread : threads) thread.join();
}

// Calls `body(group)` on one thread per rank of a new loopback group.
inline void RunGroup(int ranks,
                     const std::function<void(Communicator&)>& body) {
  LoopbackHub hub;
  RunRanks(ranks, [&](int rank) {
    GroupSpec spec;
    spec.name = "test";
    spec.rank = rank;
    spec.size = ranks;
    auto group = hub.Factory()(spec, nullptr);
    ASSERT_TRUE(group.ok()) << group.status();
    body(**group);
  });
}

// Passes everything on, but flips the last bit of what is broadcast to
// this rank.
class CorruptingCommunicator final : public Communicator {
 public:
  explicit CorruptingCommunicator(std::unique_ptr<Communicator> inner)
      : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  absl::Status Broadcast(void* data, size_t bytes, int root) override {
    absl::Status status = inner_->Broadcast(data, bytes, root);
    if (root != rank()) static_cast<char*>(data)[bytes - 1] ^= 1;
    return status;
  }
  absl::Status Gather(const void* in, size_t bytes, void* out,
                      int root) override {
    return inner_->Gather(in, bytes, out, root);
  }
  absl::Status AllGather(const void* in, size_t bytes, void* out) override {
    return inner_->AllGather(in, bytes, out);
  }
  absl::Status AllReduceMin(int64_t* values, size_t n) override {
    return inner_->AllReduceMin(values, n);
  }
  absl::Status AllReduceSum(float* values, size_t n) override {
    return inner_->AllReduceSum(values, n);
  }
  absl::Status Barrier() override { return inner_->Barrier(); }
  void Abort() override { inner_->Abort(); }

 private:
  const std::unique_ptr<Communicator> inner_;
};

}  // namespace kronserve::worker::testing

#endif  // KRONSERVE_WORKER_TESTING_RANKS_H_
