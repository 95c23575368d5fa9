#include "scheduler/state_store.h"

#include "scheduler/memory/factory.h"

namespace kronserve::scheduler::memory {
namespace {

class MemoryStateStore final : public StateStore {
 public:
  std::string Describe() const override { return "memory"; }

  absl::StatusOr<StateMap> Load() override { return state_; }

  absl::Status Write(const WriteBatch& batch) override {
    for (const StateWrite& write : batch) {
      if (write.value.has_value()) {
        state_[write.key] = *write.value;
      } else {
        state_.erase(write.key);
      }
    }
    return absl::OkStatus();
  }

 private:
  StateMap state_;
};

}  // namespace

std::unique_ptr<StateStore> CreateStateStore() {
  return std::make_unique<MemoryStateStore>();
}

}  // namespace kronserve::scheduler::memory
