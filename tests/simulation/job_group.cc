#include "tests/simulation/job_group.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace kronserve::simulation {
namespace {

absl::Status NotUsed() {
  return absl::UnimplementedError("answers are handed round by broadcasts");
}

}  // namespace

absl::Status ReplayCommunicator::Broadcast(void* data, size_t bytes, int root) {
  const int call = calls_++;
  if (rank_ == root) {
    board_[call].assign(static_cast<const char*>(data), bytes);
    return absl::OkStatus();
  }
  const auto found = board_.find(call);
  if (found == board_.end()) {
    std::memset(data, 0, bytes);
  } else {
    std::memcpy(data, found->second.data(), bytes);
  }
  return absl::OkStatus();
}

absl::Status ReplayCommunicator::AllReduceMin(int64_t*, size_t) {
  return NotUsed();
}
absl::Status ReplayCommunicator::Gather(const void*, size_t, void*, int) {
  return NotUsed();
}
absl::Status ReplayCommunicator::AllGather(const void*, size_t, void*) {
  return NotUsed();
}
absl::Status ReplayCommunicator::AllReduceSum(float*, size_t) {
  return NotUsed();
}

void JobGroup::Enter(int rank, GroupMember* member) {
  members_[rank] = member;
  const bool all = std::all_of(members_.begin(), members_.end(),
                               [](GroupMember* m) { return m != nullptr; });
  if (!all || broken_) return;
  const auto source = std::find_if(
      members_.begin(), members_.end(),
      [this](GroupMember* m) { return m->state().next_step == start_step_; });
  std::optional<TrainingState> state;
  if (source != members_.end()) state = (*source)->state();
  for (GroupMember* each : members_) {
    Tell(each, [each, state] {
      each->Formed(state.has_value() ? &*state : nullptr);
    });
  }
}

void JobGroup::Arrive(int rank) {
  arrived_[rank] = true;
  const bool all = std::all_of(arrived_.begin(), arrived_.end(),
                               [](bool arrived) { return arrived; });
  if (all && !broken_) Vote();
}

void JobGroup::Vote() {
  const int size = static_cast<int>(members_.size());
  arrived_.assign(size, false);
  ReplayCommunicator::Board board;
  for (int round = 0; round < 2; ++round) {
    for (int rank = 0; rank < size; ++rank) {
      ReplayCommunicator group(&board, rank, size);
      members_[rank]->HandRound(&group);
    }
  }
  std::vector<int64_t> minimum = members_[0]->Ballot();
  for (int rank = 1; rank < size; ++rank) {
    const std::vector<int64_t> ballot = members_[rank]->Ballot();
    for (size_t i = 0; i < minimum.size(); ++i) {
      minimum[i] = std::min(minimum[i], ballot[i]);
    }
  }
  for (GroupMember* member : members_) {
    Tell(member, [member, minimum] { member->Agreed(minimum); });
  }
}

void JobGroup::Tell(GroupMember* member, Action action) {
  env_->queue.After(
      env_->random.Between(absl::Microseconds(50), absl::Milliseconds(2)),
      member->process(), std::move(action));
}

}  // namespace kronserve::simulation
