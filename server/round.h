// One round: what the contributors of (layer, step) have sent so far.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.
// Source: PROTOCOL.md 2 and 3.

#ifndef KRONSERVE_SERVER_ROUND_H_
#define KRONSERVE_SERVER_ROUND_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "kronserve/v1/snapshot.pb.h"
#include "proto/tensor_chunks.h"
#include "server/tasks.h"

namespace kronserve::server {

// What one contributor sent for one kind.
struct Contribution {
  enum class Body { kData, kEmpty, kRefused };
  Body body = Body::kEmpty;
  int64_t rows = 0;  // Divisor: loss_rows for A, rows for G.
  Tensor sum;        // Packed raw sum; null unless kData.
  // Why it was refused; a repeat is answered with it again.
  absl::Status refusal;
};

// What the contributions of a closed round ended as. A refused one was counted
// when it was refused.
struct ContributionCounts {
  int64_t merged = 0;
  int64_t empty = 0;
  int64_t voided = 0;
  // Not in, or not committed, when the round closed; or the round was dropped.
  int64_t late = 0;
};

enum class CloseAs { kMerge, kDrop, kVoid };

struct ClosedRound {
  int64_t step = 0;
  CloseAs how = CloseAs::kDrop;
  // Fewer than all expected contributors were in and committed.
  bool partial = false;
  double damping = 0;
  double factor_decay = 0;
  // Set when kMerge; empty when no contributor sent data.
  std::vector<MergeInput::Part> a;
  std::vector<MergeInput::Part> g;
  ContributionCounts counts;
  int64_t staged_bytes = 0;  // Of all tensors that were in.
};

// Thread safety: none.
// Invariants:    a contributor is in when A and G both are; it adds data only
//                when both are data, so that A and G always come from the same
//                samples.
class Round {
 public:
  // Tells whether a rank's step is committed.
  using Committed = std::function<bool(int rank)>;

  //   contributors  ranks, ascending.
  Round(int64_t step, absl::Time opened, const std::vector<int>& contributors);

  int64_t step() const { return step_; }
  absl::Time opened() const { return opened_; }

  // Null when this identity is not in.
  const Contribution* Find(int rank, v1::FactorKind kind) const;

  // Errors:
  //   kInvalidArgument  an earlier contribution came with another damping or
  //                     decay; both values are named.
  absl::Status CheckSettings(double damping, double factor_decay) const;
  void SetSettings(double damping, double factor_decay);

  // `rank` is a contributor and (rank, kind) is not in yet.
  void Add(int rank, v1::FactorKind kind, Contribution contribution);

  // What is in, by identity.
  std::vector<v1::ClosedContribution> Identities() const;

  bool IsComplete() const;
  // Contributors that are in and committed, over all contributors.
  double ReadyShare(const Committed& committed) const;

  // Takes the tensors out; the identities stay, to recognise repeats.
  ClosedRound Close(CloseAs how, const Committed& committed);

 private:
  struct Member {
    int rank = 0;
    std::optional<Contribution> a;
    std::optional<Contribution> g;
    bool in() const { return a.has_value() && g.has_value(); }
  };
  struct Settings {
    double damping = 0;
    double factor_decay = 0;
  };

  Member* FindMember(int rank);
  const Member* FindMember(int rank) const;
  static void CountRest(const Member& member, CloseAs how, bool ready,
                        ContributionCounts* counts);

  int64_t step_;
  absl::Time opened_;
  std::vector<Member> members_;
  std::optional<Settings> settings_;
};

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_ROUND_H_
