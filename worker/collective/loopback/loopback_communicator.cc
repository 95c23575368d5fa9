// LoopbackHub and the communicator of its groups.

#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "worker/collective/loopback/factory.h"
#include "worker/collective/loopback/group.h"

namespace kronserve::worker {
namespace {

using loopback::Group;

class LoopbackCommunicator final : public Communicator {
 public:
  LoopbackCommunicator(std::shared_ptr<Group> group, const GroupSpec& spec)
      : group_(std::move(group)), rank_(spec.rank), timeout_(spec.timeout) {}
  ~LoopbackCommunicator() override {
    group_->Break(absl::UnavailableError(
        absl::StrCat("group '", group_->name(), "': rank ", rank_, " left")));
  }

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  absl::Status Broadcast(void* data, size_t bytes, int root) override {
    KRONSERVE_RETURN_IF_ERROR(CheckRoot(root));
    const Slots* slots = nullptr;
    KRONSERVE_RETURN_IF_ERROR(
        Exchange(data, root == rank_ ? bytes : 0, &slots));
    if (root == rank_) return absl::OkStatus();
    KRONSERVE_RETURN_IF_ERROR(CheckBytes(*slots, root, bytes));
    Copy((*slots)[root], data);
    return absl::OkStatus();
  }

  absl::Status Gather(const void* in, size_t bytes, void* out,
                      int root) override {
    KRONSERVE_RETURN_IF_ERROR(CheckRoot(root));
    const Slots* slots = nullptr;
    KRONSERVE_RETURN_IF_ERROR(Exchange(in, bytes, &slots));
    return root == rank_ ? CopyAll(*slots, bytes, out) : absl::OkStatus();
  }

  absl::Status AllGather(const void* in, size_t bytes, void* out) override {
    const Slots* slots = nullptr;
    KRONSERVE_RETURN_IF_ERROR(Exchange(in, bytes, &slots));
    return CopyAll(*slots, bytes, out);
  }

  absl::Status AllReduceMin(int64_t* values, size_t n) override {
    return AllReduce(values, n,
                     [](int64_t a, int64_t b) { return b < a ? b : a; });
  }

  absl::Status AllReduceSum(float* values, size_t n) override {
    return AllReduce(values, n, [](float a, float b) { return a + b; });
  }

  absl::Status Barrier() override {
    const Slots* slots = nullptr;
    return Exchange(nullptr, 0, &slots);
  }

  void Abort() override {
    group_->Break(absl::UnavailableError(absl::StrCat(
        "group '", group_->name(), "': rank ", rank_, " aborted it")));
  }

 private:
  using Slots = std::vector<std::string>;

  static void Copy(const std::string& slot, void* out) {
    if (!slot.empty()) std::memcpy(out, slot.data(), slot.size());
  }

  absl::Status CheckRoot(int root) const {
    if (root >= 0 && root < size()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("group '", group_->name(), "': root ", root,
                     " is not one of ", size(), " ranks"));
  }

  // Ranks that disagree on a size are a bug; it is named instead of read past.
  absl::Status CheckBytes(const Slots& slots, int rank, size_t bytes) {
    if (slots[rank].size() == bytes) return absl::OkStatus();
    absl::Status status = absl::InvalidArgumentError(absl::StrCat(
        "group '", group_->name(), "': rank ", rank, " sent ",
        slots[rank].size(), " bytes, rank ", rank_, " expected ", bytes));
    group_->Break(status);
    return status;
  }

  absl::Status Exchange(const void* in, size_t bytes, const Slots** slots) {
    return group_->Exchange(rank_, in, bytes, timeout_, slots);
  }

  absl::Status CopyAll(const Slots& slots, size_t bytes, void* out) {
    for (int rank = 0; rank < size(); ++rank) {
      KRONSERVE_RETURN_IF_ERROR(CheckBytes(slots, rank, bytes));
      Copy(slots[rank], static_cast<char*>(out) + rank * bytes);
    }
    return absl::OkStatus();
  }

  template <typename T, typename Combine>
  absl::Status AllReduce(T* values, size_t n, Combine combine) {
    const Slots* slots = nullptr;
    KRONSERVE_RETURN_IF_ERROR(Exchange(values, n * sizeof(T), &slots));
    std::vector<T> other(n);
    for (int rank = 0; rank < size(); ++rank) {
      KRONSERVE_RETURN_IF_ERROR(CheckBytes(*slots, rank, n * sizeof(T)));
      if (rank == 0) {
        Copy((*slots)[rank], values);
        continue;
      }
      Copy((*slots)[rank], other.data());
      for (size_t i = 0; i < n; ++i) values[i] = combine(values[i], other[i]);
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<Group> group_;
  const int rank_;
  const absl::Duration timeout_;
};

absl::Status CheckSpec(const GroupSpec& spec) {
  if (spec.size >= 1 && spec.rank >= 0 && spec.rank < spec.size &&
      spec.timeout > absl::ZeroDuration()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "group '", spec.name, "': rank ", spec.rank, " of ", spec.size,
      " with timeout ", absl::FormatDuration(spec.timeout)));
}

}  // namespace

// Groups that still wait for ranks, by name.
class LoopbackHub::Board {
 public:
  absl::StatusOr<std::unique_ptr<Communicator>> Create(const GroupSpec& spec) {
    KRONSERVE_RETURN_IF_ERROR(CheckSpec(spec));
    KRONSERVE_ASSIGN_OR_RETURN(std::shared_ptr<Group> group, FindOrAdd(spec));
    const absl::Status connected = group->Connect(spec.rank, spec.timeout);
    Forget(group);
    KRONSERVE_RETURN_IF_ERROR(connected);
    return std::make_unique<LoopbackCommunicator>(std::move(group), spec);
  }

 private:
  absl::StatusOr<std::shared_ptr<Group>> FindOrAdd(const GroupSpec& spec)
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    std::shared_ptr<Group>& group = waiting_[spec.name];
    if (group == nullptr) {
      group = std::make_shared<Group>(spec.name, spec.size);
    }
    if (group->size() != spec.size) {
      return absl::InvalidArgumentError(
          absl::StrCat("group '", spec.name, "' has ", group->size(),
                       " ranks, rank ", spec.rank, " expected ", spec.size));
    }
    if (!group->Claim(spec.rank)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "group '", spec.name, "': rank ", spec.rank, " is taken"));
    }
    return group;
  }

  void Forget(const std::shared_ptr<Group>& group) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    const auto found = waiting_.find(group->name());
    if (found != waiting_.end() && found->second == group) {
      waiting_.erase(found);
    }
  }

  Mutex mu_;
  std::map<std::string, std::shared_ptr<Group>> waiting_ ABSL_GUARDED_BY(mu_);
};

LoopbackHub::LoopbackHub() : board_(std::make_shared<Board>()) {}
LoopbackHub::~LoopbackHub() = default;

CommunicatorFactory LoopbackHub::Factory() const {
  return [board = board_](const GroupSpec& spec, Rendezvous*) {
    return board->Create(spec);
  };
}

}  // namespace kronserve::worker
