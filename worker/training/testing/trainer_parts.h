// What tests of the training loop train with: digits, a small model, ranks that
// are threads, a recorder, and a session without a service.

#ifndef KRONSERVE_WORKER_TRAINING_TESTING_TRAINER_PARTS_H_
#define KRONSERVE_WORKER_TRAINING_TESTING_TRAINER_PARTS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "common/testing/status_matchers.h"
#include "linalg/backend.h"
#include "worker/collective/loopback/factory.h"
#include "worker/training/trainer.h"

namespace kronserve::worker::testing {

inline const Dataset& Digits() {
  static const auto* const digits =
      new Dataset(*LoadDataset("digits", /*data_dir=*/""));
  return *digits;
}

inline linalg::DenseKernels<float>* Kernels() {
  static auto* const tools = new linalg::LinearAlgebra<float>(
      *linalg::CreateLinearAlgebra<float>(linalg::Device::kCpu));
  return tools->kernels.get();
}

inline TrainerOptions DigitsOptions() {
  TrainerOptions options;
  options.batch = 64;
  options.epochs = 12;
  options.lr = 0.05;
  return options;
}

// One rank's model and optimizer.
struct Rank {
  Model<float> model =
      CreateMlp(Kernels(), {64, 48, 10}, ActivationKind::kRelu, /*seed=*/5);
  std::unique_ptr<Optimizer<float>> optimizer =
      CreateSgd<float>({/*momentum=*/0.9, /*weight_decay=*/1e-4});

  TrainerParts parts() {
    TrainerParts parts;
    parts.dataset = &Digits();
    parts.model = &model;
    parts.optimizer = optimizer.get();
    return parts;
  }
};

// Runs `body` on `size` ranks that are threads.
inline void RunRanks(int size, const std::function<void(Communicator&)>& body) {
  LoopbackHub hub;
  const CommunicatorFactory factory = hub.Factory();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto group =
          factory(GroupSpec{"job", rank, size, absl::Seconds(20)}, nullptr);
      ASSERT_THAT(group, ::kronserve::testing::IsOk());
      body(**group);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

struct Recorder final : TrainingObserver {
  void OnStep(const StepEvent& event) override { steps.push_back(event); }
  void OnEval(const EvalEvent& event) override { evals.push_back(event); }
  void OnFallback(const FallbackEvent& event) override {
    fallbacks.push_back(event);
  }
  std::vector<StepEvent> steps;
  std::vector<EvalEvent> evals;
  std::vector<FallbackEvent> fallbacks;
};

inline double LargestDifference(const Model<float>& one,
                                const Model<float>& other) {
  double largest = 0;
  for (size_t i = 0; i < one.weights().size(); ++i) {
    const auto& a = one.weights()[i]->values.values;
    const auto& b = other.weights()[i]->values.values;
    for (size_t j = 0; j < a.size(); ++j) {
      largest = std::max(largest, std::fabs(double(a[j]) - double(b[j])));
    }
  }
  return largest;
}

// Wants no statistics and leaves gradients as they are.
class FakeSession : public Session {
 public:
  Communicator& job_group() override { return *group; }
  int64_t start_step() const override { return 0; }
  int64_t restart_count() const override { return 0; }
  uint64_t plan_hash() const override { return 0; }
  bool NeedsStatistics(int64_t, int) const override { return false; }
  absl::Status AccumulateLinear(int, linalg::ConstMatrixView<float>,
                                linalg::ConstMatrixView<float>,
                                int64_t) override {
    return absl::InvalidArgumentError("no statistics are wanted");
  }
  absl::Status AccumulateConv(int, const curvature::ConvGeometry&,
                              linalg::ConstMatrixView<float>,
                              linalg::ConstMatrixView<float>,
                              int64_t) override {
    return absl::InvalidArgumentError("no convolutions here");
  }
  absl::Status Finish() override { return absl::OkStatus(); }

  Communicator* group = nullptr;
};

}  // namespace kronserve::worker::testing

#endif  // KRONSERVE_WORKER_TRAINING_TESTING_TRAINER_PARTS_H_
