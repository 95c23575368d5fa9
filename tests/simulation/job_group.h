// The ranks' job group: it works for all of them, or breaks for all.
//
// Layer: tests.

#ifndef KRONSERVE_TESTS_SIMULATION_JOB_GROUP_H_
#define KRONSERVE_TESTS_SIMULATION_JOB_GROUP_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/simulation/environment.h"
#include "worker/collective/communicator.h"

namespace kronserve::simulation {

// One rank's end of broadcasts that the ranks make one after the other on one
// thread. All make them twice: the first time a rank that comes before the
// root gets zeros, the second time everybody gets what the root has left.
class ReplayCommunicator final : public worker::Communicator {
 public:
  // What roots left, by the number of the call.
  using Board = std::map<int, std::string>;

  ReplayCommunicator(Board* board, int rank, int size)
      : board_(*board), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  absl::Status Broadcast(void* data, size_t bytes, int root) override;

  // What the hand-round of answers does not use.
  absl::Status AllReduceMin(int64_t*, size_t) override;
  absl::Status Gather(const void*, size_t, void*, int) override;
  absl::Status AllGather(const void*, size_t, void*) override;
  absl::Status AllReduceSum(float*, size_t) override;
  absl::Status Barrier() override { return absl::OkStatus(); }
  void Abort() override {}

 private:
  Board& board_;
  const int rank_;
  const int size_;
  int calls_ = 0;
};

// What training has come to.
struct TrainingState {
  int64_t next_step = 0;
  std::vector<std::vector<float>> parameters;  // [layers]
};

// A rank, as its group sees it.
class GroupMember {
 public:
  virtual ~GroupMember() = default;
  virtual const ProcessPtr& process() const = 0;
  virtual const TrainingState& state() const = 0;
  // All have entered. `state` is the lowest rank's that is at the first step;
  // null when nobody is.
  virtual void Formed(const TrainingState* state) = 0;
  // Hands answers round; called twice, see above.
  virtual void HandRound(worker::Communicator* group) = 0;
  // worker::EncodeBallot() of this rank.
  virtual std::vector<int64_t> Ballot() = 0;
  // The minimum of all ballots.
  virtual void Agreed(const std::vector<int64_t>& minimum) = 0;
};

// The group of one world. A collective that all ranks have come to succeeds on
// all of them, also when one dies before it has its result.
//
// Thread safety: none.
class JobGroup {
 public:
  JobGroup(Environment* env, int ranks, int64_t start_step)
      : env_(env),
        start_step_(start_step),
        members_(ranks, nullptr),
        arrived_(ranks, false) {}

  void Enter(int rank, GroupMember* member);
  // The rank has come to its step vote.
  void Arrive(int rank);
  // A member died, or the ranks lost one another: nothing succeeds any more.
  void Break() { broken_ = true; }

 private:
  void Vote();
  void Tell(GroupMember* member, Action action);

  Environment* const env_;
  const int64_t start_step_;
  bool broken_ = false;
  std::vector<GroupMember*> members_;  // Null before it entered.
  std::vector<bool> arrived_;
};

}  // namespace kronserve::simulation

#endif  // KRONSERVE_TESTS_SIMULATION_JOB_GROUP_H_
